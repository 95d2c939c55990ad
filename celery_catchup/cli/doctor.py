"""``celery catchup doctor``: what is wrong or risky, and the fix for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import EX_FAILURE, force_option, json_option, option, verb
from celery_catchup.cli.screen import Screen, clean, counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@verb("doctor", short_help="What is wrong or risky here, and the fix for each.")
@option("--fix", group="Changes", is_flag=True, help="Mend what is stored and cannot be right, after asking.")
@force_option
@json_option
def command(operator: Operator, screen: Screen, *, fix: bool, force: bool, as_json: bool) -> int:
    """Examine the configuration, the server, beats, workers, and what has happened; say the fix for each.

    The exit code is 1 when something does not work or could not be examined; warnings leave it 0.
    """
    from celery_catchup.operations.doctor import examine, repairs

    for repair in repairs(operator) if fix else ():
        screen.note(clean(f"{repair.what}; {repair.fix}"))
        screen.confirm("Do it?", force=force, doing="mend what is stored")
        repair.do()
    found = examine(operator)
    if as_json:
        screen.json(found)
    else:
        for one in found.findings:
            screen.out(f"{screen.painted(one.verdict.value)}: {clean(one.check)}: {clean(one.detail)}")
            if one.fix:
                screen.out(f"    fix: {clean(one.fix)}")
        failures = sum(one.verdict.value == "failure" for one in found.findings)
        warnings = sum(one.verdict.value == "warning" for one in found.findings)
        screen.out()
        screen.out(f"{counted(failures, 'failure')}, {counted(warnings, 'warning')}.")
    return 0 if found.healthy else EX_FAILURE
