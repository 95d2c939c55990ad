"""``for_each``: one declaration for many entries, one for each value or pair of values."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from celery_catchup.config.fields import FieldParser, SeveralProblemsError, text
from celery_catchup.error_text import path, shown

MOST_KEYS = 2
MOST_ENTRIES = 10_000
"""Entries that one declaration makes at most."""
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_RESERVED = "[],*?"
"""Characters that a value cannot have: they have a meaning in names of entries, and in patterns of them."""
_SHOWN = 5
"""Mistakes that one message names; a list may have thousands."""

Values = tuple[str, ...]
"""The values of one argument, or one of each argument."""


@dataclass(frozen=True, slots=True)
class ForEach:
    """The arguments that differ between the entries: ``lists`` of values, and ``functions`` that return
    them, by argument; ``keys`` are both, in their order."""

    keys: tuple[str, ...]
    lists: Mapping[str, Values]
    functions: Mapping[str, str]

    def __str__(self) -> str:
        return ", ".join(f"{key}: {self.functions.get(key) or list(self.lists[key])}" for key in self.keys)

    def combinations(self, found: Mapping[str, Values]) -> list[Values]:
        """Return a value of each argument, for each entry; ``found`` has the values of the functions. There
        are no entries before all of them are known, and none if there are too many."""
        each = [self.lists.get(key, found.get(key)) for key in self.keys]
        known = [values for values in each if values is not None]
        return list(product(*known)) if len(known) == len(each) and not too_many(known) else []


@dataclass(frozen=True, slots=True)
class Expansion:
    """The place of an entry among those that one declaration makes: the declaration's name ``of``, the text
    that tells the entry apart, and the arguments whose values come from functions."""

    of: str
    tenant: str
    varies: tuple[str, ...] = ()

    @property
    def record(self) -> str:
        """The name under which the entry is recorded, if not its own: values of a function come and go
        without drift, while another schedule of their entries is one."""
        return f"{self.of}[*]" if self.varies else ""


def expanded_name(name: str, values: Values) -> str:
    """Return the name of the entry with these values: ``sync[eu]`` or ``sync[eu,gold]``."""
    return f"{name}[{tenant_of(values)}]"


def tenant_of(values: Values) -> str:
    """Return the part of a run's identity that these values are."""
    return ",".join(values)


def too_many(each: Collection[Collection[str]]) -> str | None:
    """Return why there are too many entries; None if there are not."""
    total = math.prod(map(len, each))
    if total <= MOST_ENTRIES:
        return None
    return f"makes {total:,} entries, and at most {MOST_ENTRIES:,} are allowed; divide them"


def value_problems(values: object) -> list[str]:
    """Return what is wrong with the values of one argument."""
    if not isinstance(values, list | tuple | set | frozenset):
        return [f"expected a list of texts such as ['eu', 'us'], got {shown(values)}"]
    problems = [problem for value in values if (problem := _value_problem(value))]
    for value, count in Counter(value for value in values if isinstance(value, str)).items():
        if count > 1:
            problems.append(f"{shown(value)} is there {count} times; keep one of them")
    return _some(problems)


def listed_values(values: Any) -> Values:
    """Return values without problems in their order; those of a set by their alphabet."""
    return tuple(sorted(values) if isinstance(values, set | frozenset) else values)


def _value_problem(value: object) -> str | None:
    try:
        written = text(value)
    except ValueError as error:
        return str(error)
    if not written or written != written.strip():
        return f"expected a text without blanks around it, got {shown(value)}"
    found = [one for one in _RESERVED if one in written]
    if found:
        return f"{shown(value)} has {' and '.join(found)}, which mean something in names; use another value"
    return None


def _some(problems: list[str]) -> list[str]:
    more = len(problems) - _SHOWN
    return problems[:_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _parse(value: object) -> ForEach:
    if isinstance(value, ForEach):
        return value
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"expected a mapping such as {{'tenant': ['eu', 'us']}}, got {shown(value)}")
    problems = list(_key_problems(value))
    lists: dict[str, Values] = {}
    functions: dict[str, str] = {}
    for key, values in value.items():
        if isinstance(values, str) and _FUNCTION.fullmatch(values):
            functions[str(key)] = values
        elif isinstance(values, str):
            problems.append(
                f"{path('', key)}: expected a list, or a function such as 'proj.tenants:active',"
                f" got {shown(values)}"
            )
        elif found := value_problems(values):
            problems += [f"{path('', key)}: {problem}" for problem in found]
        elif not values:
            problems.append(f"{path('', key)}: the list is empty, got []; name at least one value")
        else:
            lists[str(key)] = listed_values(values)
    if not problems and not functions and (problem := too_many(lists.values())):
        problems.append(problem)
    if problems:
        raise SeveralProblemsError(_some(problems))
    return ForEach(tuple(map(str, value)), lists, functions)


def _key_problems(value: Mapping[object, object]) -> Iterator[str]:
    if len(value) > MOST_KEYS:
        yield f"expected at most {MOST_KEYS} arguments, got {len(value)}; combine some of them into one value"
    for key in value:
        if not isinstance(key, str) or not key.isidentifier():
            yield f"expected the name of a keyword argument, got {shown(key)}"


FOR_EACH = FieldParser(
    _parse, "mapping of an argument, or two, to a list of texts or a function `module:function`"
)
