"""Models of what a user wrote: strict, fixed once read, with mistakes in plain words.

pydantic walks the fields; what it finds is told at the name the user wrote, as a `Mistake`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from celery_catchup.error_text import nearest, path
from celery_catchup.errors import ConfigurationError, Mistake


class UserModel(BaseModel):
    """The base of every model that is read from the user's settings."""

    # Inputs may hold passwords, so that no error of pydantic's own repeats one.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    @classmethod
    def read(cls, raw: Mapping[str, object], *, where: str = "", timezone: tzinfo = UTC) -> Self:
        """The values of a mapping; all its mistakes at once as a `ConfigurationError`.

        Times without an offset are wall-clock times of ``timezone``.
        """
        try:
            return cls.model_validate(dict(raw), context={"timezone": timezone})
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            raise ConfigurationError(_mistakes(cls, found, raw=raw, where=where)) from None

    @classmethod
    def spellings(cls) -> dict[str, str]:
        """Every accepted name -> the field's own."""
        names = {name: name for name in cls.model_fields}
        for name, field in cls.model_fields.items():
            choices = getattr(field.validation_alias, "choices", (field.validation_alias,))
            names |= {choice: name for choice in choices if isinstance(choice, str)}
        return names

    @classmethod
    def unknown(cls, name: object) -> str:
        """What to say about a name that is none of ours."""
        names = cls.spellings()
        meant = nearest(str(name), names)
        return f"unknown field; did you mean {names[meant]!r}?" if meant else "unknown field"


def _mistakes(
    model: type[UserModel], found: Sequence[Any], *, raw: Mapping[str, object], where: str
) -> Iterator[Mistake]:
    names = model.spellings()
    misspelt = {names.get(nearest(str(key), names) or "") for key in raw if key not in names}
    for item in found:
        key = item["loc"][0]
        # A field that is missing because its name was misspelt is one mistake and not two.
        if key in raw or names.get(key) not in misspelt:
            yield Mistake(path(where, key), _problem(item, key=key, model=model))


def _problem(item: Any, *, key: object, model: type[UserModel]) -> str:
    names = model.spellings()
    match item["type"]:
        case "extra_forbidden" if key in names:
            return f"{names[str(key)]!r} is given under two names; keep one of them"
        case "extra_forbidden" | "invalid_key":
            return model.unknown(key)
        case "missing":
            return f"missing; add {key!r}"
        case _:
            return str(item["ctx"]["error"])
