"""The wheel as a stranger gets it: built, installed into an empty environment, and used there."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import celery_catchup
from tests.acceptance.processes import ROOT

PACKAGE = Path(celery_catchup.__file__).parent
NOT_SHIPPED = {".pyc"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def run(*command: str | Path, cwd: Path) -> str:
    """What a program prints; nothing of this checkout is on its path."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of an environment are that has the wheel and nothing else."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True)
    run(home / "bin" / "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[demo]", cwd=home)
    return home / "bin"


def test_everything_that_is_in_the_package_is_in_the_wheel(wheel: Path) -> None:
    files = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in NOT_SHIPPED
    }
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())

    assert files <= inside
    assert {"celery_catchup/py.typed", "celery_catchup/store/lua/commit.lua"} <= inside


def test_the_version_has_one_place(wheel: Path, programs: Path, tmp_path: Path) -> None:
    told = run(
        programs / "python", "-c", "import celery_catchup; print(celery_catchup.__version__)", cwd=tmp_path
    )

    assert told.strip() == celery_catchup.__version__
    assert wheel.name.startswith(f"celery_catchup-{celery_catchup.__version__}-")


def test_every_tracked_file_is_in_the_source_distribution(dist: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("only a git checkout says which files are tracked")
    tracked = set(run("git", "ls-files", cwd=ROOT).split())
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    assert sorted(tracked - inside) == []


def test_the_tests_of_the_source_distribution_can_be_collected(dist: Path, tmp_path: Path) -> None:
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        archive.extractall(tmp_path, filter="data")
    (root,) = tmp_path.iterdir()

    told = run(
        sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", root, cwd=root
    )

    assert "tests/benchmarks/test_benchmarks.py" in told


def test_beat_and_the_commands_are_there(programs: Path, tmp_path: Path) -> None:
    assert "--scheduler" in run(
        programs / "celery", "beat", "-S", "celery_catchup.Scheduler", "--help", cwd=tmp_path
    )
    assert "preview" in run(programs / "celery", "catchup", "--help", cwd=tmp_path)


def test_the_demo_runs(programs: Path, tmp_path: Path) -> None:
    told = run(programs / "celery", "catchup", "demo", cwd=tmp_path)

    assert "0 unaccounted" in told
