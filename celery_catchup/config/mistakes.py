"""Collect the mistakes of a configuration, so that the user can correct all of them at once."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from celery_catchup.errors import ConfigurationError, Mistake


class Mistakes(list[Mistake]):
    """The mistakes found so far; parsing continues after each of them."""

    def add(self, where: str, problem: str) -> None:
        """Add one mistake."""
        self.append(Mistake(where, problem))

    def collect(self) -> _Collector:
        """Catch the `ConfigurationError` of a block, and keep its mistakes."""
        return _Collector(self)

    def raise_if_any(self) -> None:
        """Raise one error with all mistakes."""
        if self:
            raise ConfigurationError(self)


@dataclass(frozen=True, slots=True)
class _Collector:
    # A class, not a generator: its signature tells the type checker that the block may end early.
    mistakes: Mistakes

    def __enter__(self) -> None: ...

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> bool:
        if not isinstance(error, ConfigurationError):
            return False
        self.mistakes.extend(error.mistakes)
        return True


def config_error(where: str, problem: str) -> ConfigurationError:
    """Return an error with one mistake."""
    return ConfigurationError([Mistake(where, problem)])
