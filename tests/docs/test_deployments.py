"""The files for containers, Kubernetes, systemd and CI can be read, and run commands that exist."""

from __future__ import annotations

import configparser
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from celery_catchup.cli import catchup

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "examples" / "kubernetes" / "celery.yaml"
UNITS = sorted((ROOT / "examples" / "systemd").glob("*.service"))
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))


def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8")))


def containers() -> Iterator[tuple[str, dict[str, Any]]]:
    for document in yaml.safe_load_all(MANIFESTS.read_text(encoding="utf-8")):
        if document["kind"] == "Deployment":
            for container in document["spec"]["template"]["spec"]["containers"]:
                yield document["metadata"]["name"], container


def commands() -> Iterator[list[str]]:
    """Every command line of the files that is Celery's."""
    for service in compose()["services"].values():
        if "command" in service:
            yield shlex.split(service["command"])
        yield service.get("healthcheck", {}).get("test", ["CMD"])[1:]
    for _, container in containers():
        yield container["command"]
        yield container.get("readinessProbe", {}).get("exec", {}).get("command", [])
    for path in UNITS:
        line = shlex.split(unit(path)["Service"]["ExecStart"])
        yield [Path(line[0]).name, *line[1:]]


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


OURS = [words for words in commands() if words[:1] == ["celery"] and "catchup" in words]


@pytest.mark.parametrize("words", OURS, ids=" ".join)
def test_a_command_of_ours_exists_with_its_options(words: list[str]) -> None:
    verb, *options = words[words.index("catchup") + 1 :]
    command = catchup.get_command(click.Context(catchup), verb)

    assert command is not None
    known = {name for parameter in command.params for name in parameter.opts}
    passes_on = command.context_settings.get("ignore_unknown_options", False)
    assert passes_on or {option for option in options if option.startswith("--")} <= known


def test_there_are_two_beats_and_one_of_everything_else() -> None:
    services = compose()["services"]

    assert services["beat"]["deploy"]["replicas"] == 2
    assert set(services) == {"redis", "worker", "beat", "flower"}
    assert "--appendonly yes" in services["redis"]["command"]
    assert "noeviction" in services["redis"]["command"]


def test_the_manifests_have_two_beats_that_are_asked_whether_one_leads() -> None:
    found = dict(containers())

    assert set(found) == {"celery-beat", "celery-worker", "flower"}
    assert "--check" in found["celery-beat"]["readinessProbe"]["exec"]["command"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_complete(path: Path) -> None:
    sections = unit(path)

    assert {"Unit", "Service", "Install"} <= set(sections.sections())
    assert sections["Service"]["ExecStart"].startswith("/srv/proj/.venv/bin/celery -A proj ")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_or_template_can_be_read(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert found.get("jobs") or found.get("body")


def workflow(name: str) -> dict[Any, Any]:
    return dict(yaml.safe_load((ROOT / ".github" / "workflows" / name).read_text(encoding="utf-8")))


def test_the_workflow_runs_the_process_tests_on_each_python_and_celery() -> None:
    job = workflow("tests.yml")["jobs"]["processes"]
    matrix = job["strategy"]["matrix"]

    assert matrix == {"python": ["3.11", "3.12", "3.13", "3.14"], "celery": ["5.5.*", "5.6.*", "5.7.*"]}
    assert job["continue-on-error"] == "${{ matrix.python == '3.14' }}"
    assert "tests/acceptance" in job["steps"][-1]["run"]
    assert job["strategy"]["fail-fast"] is False


def test_the_workflow_runs_what_ci_runs() -> None:
    steps = workflow("tests.yml")["jobs"]["suite"]["steps"]

    assert {"run": "bash .ci/run"} in steps


def test_nothing_is_published_before_the_tests_have_passed() -> None:
    jobs = workflow("release.yml")["jobs"]
    needed = [jobs[name].get("uses") for name in jobs["publish"]["needs"]]

    assert "./.github/workflows/tests.yml" in needed
    assert "workflow_call" in workflow("tests.yml")[True]  # YAML reads the key `on` as true


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize("allowed", [True, False])
def test_ci_installs_spin_with_sudo_where_it_may(tmp_path: Path, *, allowed: bool) -> None:
    for name in ("bash", "chmod", "dirname", "env", "seq", "sleep", "timeout", "touch", "true"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    script(tmp_path / "id", "echo 1000")
    script(tmp_path / "sudo", f'{"true" if allowed else "exit 1"}; [ "$1" = -n ] && shift; exec "$@"')
    install = 'touch "${0%/*}/$one" && chmod +x "${0%/*}/$one"'
    script(tmp_path / "apt-get", f'for one in "$@"; do case $one in spin|gcc) {install};; esac; done')
    script(tmp_path / "python3", 'echo "required: $CATCHUP_REQUIRE"')

    told = subprocess.run(
        [tmp_path / "bash", ROOT / ".ci" / "run"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout

    required = told.rpartition("required: ")[2].strip().split(",")
    assert ("spin" in required) is allowed
