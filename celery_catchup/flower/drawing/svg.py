"""SVG and HTML as text. Whatever is not made here is escaped, so that no name can become markup."""

from __future__ import annotations

from functools import cache
from html import escape


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, *content: str, **attributes: object) -> Markup:
    """``element("rect", x=1, class_="cu-slot")``; attributes that are None are left out.

    A trailing underscore is dropped and others become dashes. Content that is no `Markup` is escaped.
    """
    told = "".join(
        f' {_attribute(key)}="{escape(_written(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = joined(content)
    return Markup(f"<{name}{told}>{inside}</{name}>")


def joined(parts: tuple[str, ...] | list[str]) -> Markup:
    """The parts one after the other, each escaped unless it is markup."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def percent(share: float) -> str:
    """A share of the whole width, so that a drawing fits whatever width it is given."""
    return f"{100 * share:.2f}".rstrip("0").rstrip(".") + "%"


@cache
def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _written(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
