"""Mistakes are collected, not thrown one by one: the user mends the configuration once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from celery_catchup.errors import ConfigurationError, Mistake


class Mistakes(list[Mistake]):
    """The mistakes found so far; reading goes on behind each of them."""

    def add(self, where: str, problem: str) -> None:
        """Note one more."""
        self.append(Mistake(where, problem))

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep the mistakes of a part that cannot be read, and go on without that part."""
        try:
            yield
        except ConfigurationError as error:
            self.extend(error.mistakes)

    def raise_if_any(self) -> None:
        """End with one error that holds them all."""
        if self:
            raise ConfigurationError(self)


def refuse(where: str, problem: str) -> ConfigurationError:
    """One mistake as an error, to be raised."""
    return ConfigurationError([Mistake(where, problem)])
