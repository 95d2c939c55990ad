"""Read and write sets of entries as YAML or JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from celery_catchup.config.mistakes import config_error
from celery_catchup.error_text import describe_error, shown
from celery_catchup.errors import CatchupError

_ENTRIES = "entries"


class FormatError(CatchupError):
    """The file cannot be read or written in its format."""


def is_json(path: str) -> bool:
    """Tell whether a file of this name is JSON; any other is YAML, which includes JSON."""
    return PurePath(path).suffix.lower() == ".json"


def read_document(text: str, *, path: str) -> list[Any]:
    """Return the entries of a file: a list, or a mapping with the list under ``entries``."""
    try:
        found = json.loads(text) if is_json(path) else _yaml(path).safe_load(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is not JSON: {error}") from None
    except FormatError:
        raise
    except Exception as error:  # noqa: BLE001 - PyYAML's errors exist only where it is installed
        raise FormatError(f"{path} is not YAML: {describe_error(error, longest=300)}") from None
    if isinstance(found, Mapping):
        unknown = [name for name in found if name != _ENTRIES]
        if unknown:
            raise config_error(
                path, f"expected a list of entries, or one under 'entries', got {shown(unknown)}"
            )
        found = found.get(_ENTRIES)
    if found is None:
        return []
    if not isinstance(found, list):
        raise config_error(path, f"expected a list of entries, got {shown(found)}")
    return found


def write_document(entries: Sequence[Mapping[str, Any]], *, path: str) -> str:
    """Return the text of a file with these entries."""
    if is_json(path):
        return json.dumps({_ENTRIES: list(entries)}, indent=2) + "\n"
    return str(
        _yaml(path).safe_dump({_ENTRIES: list(entries)}, sort_keys=False, allow_unicode=True, width=100)
    )


def _yaml(path: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise FormatError(
            f"{path}: YAML needs a package; run: pip install pyyaml; or use a file that ends in .json"
        ) from None
    return yaml
