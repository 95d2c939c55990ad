"""Make the entries of a declaration with ``for_each``: each is a copy with other arguments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from celery_catchup.beat.catchup_entry import declaration_of
from celery_catchup.config.configuration import DECLARED, UNSET, Declaration, EntryTemplate
from celery_catchup.config.fields import PAUSE
from celery_catchup.config.for_each import FOR_EACH, Expansion, ForEach, Values, expanded_name, tenant_of
from celery_catchup.config.policy import REFRESH, Policy
from celery_catchup.error_text import shown


@dataclass(frozen=True)
class Expanded:
    """Entries as a source has them, with those of ``for_each`` in place of their declarations.

    templates   the declarations, by name
    expansions  for each entry that was made, of which declaration
    """

    entries: Mapping[str, Any]
    templates: Mapping[str, EntryTemplate] = field(default_factory=dict)
    expansions: Mapping[str, Expansion] = field(default_factory=dict)


Found = Mapping[str, Mapping[str, Values]]
"""The values of functions, by declaration and argument."""


@dataclass(frozen=True)
class Declares:
    """The ``for_each`` of an entry; ``refresh`` is in seconds."""

    each: ForEach
    refresh: float


def find_for_each(entries: Mapping[str, Any], policies: object) -> dict[str, Declares | None]:
    """Find the entries with ``for_each``; None for one that cannot be parsed, which the configuration
    reports."""
    given = policies if isinstance(policies, Mapping) else {}
    found: dict[str, Declares | None] = {}
    for name, fields in entries.items():
        own = _own_policy(fields)
        written = given.get(name) if own is UNSET else own
        if isinstance(written, Mapping | Policy) and not _is_plain(fields):
            values = _field(written, "for_each")
            if values is not None:
                found[name] = _parse(values, _field(written, "refresh"))
    return found


def expand(
    entries: Mapping[str, Any],
    declares: Mapping[str, Declares | None],
    found: Found,
) -> Expanded:
    """Put the entries that ``for_each`` makes in place of their declarations."""
    if not declares:
        return Expanded(entries)
    result: dict[str, Any] = {}
    templates: dict[str, EntryTemplate] = {}
    expansions: dict[str, Expansion] = {}
    for name, fields in entries.items():
        if name not in declares:
            result[name] = fields
            continue
        each = None if (one := declares[name]) is None else one.each
        problems = () if each is None else tuple(_problems(name, fields, each, entries))
        templates[name] = EntryTemplate(_declaration(fields), problems)
        if each is None or problems:
            continue
        for values in each.combinations(found.get(name, {})):
            made = expanded_name(name, values)
            if made in entries:  # with a value of a function: the entry of this name stays
                continue
            result[made] = _copy(made, fields, dict(zip(each.keys, values, strict=True)))
            expansions[made] = Expansion(name, tenant_of(values), tuple(each.functions))
    return Expanded(result, templates, expansions)


def _own_policy(fields: Any) -> object:
    """Return the policy on the entry itself."""
    if not isinstance(fields, Mapping):
        return getattr(fields, "catchup", UNSET)
    options = fields.get("options")
    in_options = options.get("catchup", UNSET) if isinstance(options, Mapping) else UNSET
    return fields.get("catchup", in_options)


def _is_plain(fields: Any) -> bool:
    return not isinstance(fields, Mapping) and declaration_of(fields).plain


def _field(written: Mapping[Any, Any] | Policy, name: str) -> Any:
    if isinstance(written, Policy):
        return getattr(written, name)
    spellings = Policy.spellings()
    return next((value for key, value in written.items() if spellings.get(str(key)) == name), None)


def _parse(values: object, refresh: object) -> Declares | None:
    try:
        each: ForEach = FOR_EACH.read(values)
        seconds = REFRESH if refresh is None else PAUSE.read(refresh)
    except ValueError:
        return None
    return Declares(each, seconds.total_seconds())


def _problems(name: str, fields: Any, each: ForEach, entries: Collection[str]) -> list[str]:
    kwargs = _kwargs(fields)
    problems = [
        f"the entry has the argument {shown(key)} already; remove it" for key in each.keys if key in kwargs
    ]
    if not each.functions:
        taken = [made for one in each.combinations({}) if (made := expanded_name(name, one)) in entries]
        problems += [f"makes {shown(made)}, which {DECLARED} has, too; rename one" for made in taken[:5]]
    return problems


def _kwargs(fields: Any) -> Mapping[str, Any]:
    kwargs = fields.get("kwargs") if isinstance(fields, Mapping) else getattr(fields, "kwargs", None)
    return kwargs if isinstance(kwargs, Mapping) else {}


def _declaration(fields: Any) -> Declaration:
    if isinstance(fields, Mapping):
        return Declaration(fields.get("schedule"), _own_policy(fields))
    return declaration_of(fields)


def _copy(name: str, fields: Any, values: Mapping[str, str]) -> Any:
    """Return the fields of an entry, or the entry itself, with these arguments and without its policy, which
    is that of its declaration."""
    kwargs = {**_kwargs(fields), **values}
    if isinstance(fields, Mapping):
        kept = {key: value for key, value in fields.items() if key not in ("catchup", "name")}
        options = fields.get("options")
        if isinstance(options, Mapping) and "catchup" in options:
            kept["options"] = {key: value for key, value in options.items() if key != "catchup"}
        return {**kept, "kwargs": kwargs}
    made = object.__new__(type(fields))  # Celery's own copy loses what a class adds
    vars(made).update(vars(fields), name=name, kwargs=kwargs)
    if hasattr(made, "catchup"):
        made.catchup = UNSET
    return made
