"""``celery catchup doctor``: find problems and risks, each with its fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

from celery_catchup.cli.command import EX_FAILURE, operator_command
from celery_catchup.cli.parameters import force_option, json_option, option
from celery_catchup.cli.screen import Screen, clean
from celery_catchup.error_text import counted

if TYPE_CHECKING:
    from celery_catchup.operations import Operator


@operator_command("doctor", short_help="Find problems and risks, each with its fix.")
@option("--fix", group="Changes", is_flag=True, help="Repair inconsistent stored state, after asking.")
@force_option
@json_option
def command(operator: Operator, screen: Screen, *, fix: bool) -> int:
    """Check the configuration, the server, beats, workers and the history; print a fix for each problem.

    The exit code is 1 if something does not work or could not be checked; warnings leave it 0.
    """
    from celery_catchup.operations.doctor import examine, repairs

    for repair in repairs(operator) if fix else ():
        screen.note(clean(f"{repair.what}; {repair.fix}"))
        screen.confirm("Repair it?", action="repair stored state")
        repair.do()
    found = examine(operator)
    if not screen.printed_as_json(found):
        for one in found.findings:
            screen.out(f"{screen.painted(one.verdict.value)}: {clean(one.check)}: {clean(one.detail)}")
            if one.fix:
                screen.out(f"    fix: {clean(one.fix)}")
        verdicts = [one.verdict.value for one in found.findings]
        failures, warnings = verdicts.count("failure"), verdicts.count("warning")
        screen.out(f"\n{counted(failures, 'failure')}, {counted(warnings, 'warning')}.")
    return 0 if found.healthy else EX_FAILURE
