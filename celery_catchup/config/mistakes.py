"""Mistakes are collected, not thrown one by one: the user mends the configuration once."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from celery_catchup.errors import ConfigurationError, Mistake


class Mistakes(list[Mistake]):
    """The mistakes found so far; reading goes on behind each of them."""

    def add(self, where: str, problem: str) -> None:
        """Note one more."""
        self.append(Mistake(where, problem))

    def collect(self) -> _Gathering:
        """Keep the mistakes of a part that cannot be read, and go on without that part."""
        return _Gathering(self)

    def raise_if_any(self) -> None:
        """End with one error that holds them all."""
        if self:
            raise ConfigurationError(self)


@dataclass(frozen=True, slots=True)
class _Gathering:
    # A class and no generator: its signature tells the type checker that the block may end early.
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
    """One mistake as an error, to be raised."""
    return ConfigurationError([Mistake(where, problem)])
