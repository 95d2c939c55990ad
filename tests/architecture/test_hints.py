"""Every command that the package suggests to users is executed by a test, as printed."""

from __future__ import annotations

from tests.acceptance.test_hints import PLACES, SCENES


def test_every_hint_has_a_scene() -> None:
    shown = {hint for hints in SCENES.values() for hint in hints}

    assert sorted(set(PLACES.values()) - shown) == [], "write a scene in tests/acceptance/test_hints.py"
    assert sorted(shown - set(PLACES.values())) == [], "the code has no such hint any more"
