#!/usr/bin/env python3
"""The one script a fresh machine needs.

    python3 run.py demo            see an outage and its recovery, on a private server
    python3 run.py test            all checks, then the test suite
    python3 run.py test ARGS       all checks, then pytest ARGS
    python3 run.py test --oldest   the suite with the oldest supported Celery, kombu and redis-py

and for work on the code: setup, check, soak, model, bench, docs. It makes a virtual environment
in .venv the first time, and again when pyproject.toml or tools.lock has changed.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - said here, before anything that an older one cannot read
    sys.exit(f"celery-catchup needs Python 3.11 or newer; this is {sys.version.split()[0]}.")

HERE = Path(__file__).resolve().parent
EXTRAS = {"bench": "bench", "demo": "demo", "docs": "docs"}  # every other verb needs "test"
TOOLS = "tools.lock"  # the versions of the development tools
OLDEST = ["celery==5.5.*", "kombu==5.5.*", "redis==5.2.*"]
PARALLEL = ("-n", "3", "--dist", "worksteal")
"""Many tests wait for processes, so that two cores have time for three; one that has nothing left takes tests
from another."""
CHECKS = [
    ["ruff", "format", "--check", "."],
    ["ruff", "check", "."],
    ["mypy"],
    ["lint-imports"],
]


def main(verb: str = "help", *args: str) -> int:
    """Do what the verb says; the result is the exit code."""
    os.chdir(HERE)
    if verb == "setup":
        environment("test")
        return 0
    if verb == "demo":
        python = environment("demo")
        os.execv(
            python, [str(python), "-m", "celery_catchup", "demo", *args]
        )  # signals then reach it directly
    if verb == "test" and args[:1] == ("--oldest",):
        python = environment("test", home=HERE / ".venv-oldest", pins=OLDEST)
        return stages(python, [["pytest", *(args[1:] or PARALLEL)]])
    work = {
        "check": CHECKS,
        "test": [*CHECKS, ["pytest", *(args or PARALLEL)]],
        "soak": [["pytest", "-m", "soak or figures", *args], ["python", "docs/results.py"]],
        "model": [["pytest", "-m", "", "tests/model", *args]],
        "bench": [["python", "-m", "benchmarks", *args]],
        "docs": [["sphinx-build", "-W", "-b", "html", "docs", "docs/_build", *args]],
    }
    if verb == "soak":
        os.environ.setdefault("CATCHUP_RESULTS", str(HERE / "docs" / "results.jsonl"))
    if verb not in work:
        print(__doc__)
        return 0 if verb in ("help", "-h", "--help") else 2
    return stages(environment(EXTRAS.get(verb, "test")), work[verb])


def stages(python: Path, commands: list[list[str]]) -> int:
    """Run them all, so that one failure does not hide another; the exit code is the first failure's."""
    failure = 0
    for command in commands:
        start = time.monotonic()
        code = call(python, command)
        verdict = "ok" if code == 0 else f"FAILED (exit code {code})"
        print(f"== {' '.join(command)}: {verdict}, {time.monotonic() - start:.1f} s", flush=True)
        failure = failure or code
    return failure


def call(python: Path, command: list[str]) -> int:
    """Run a program that lives beside ``python``, on our terminal, and wait."""
    with subprocess.Popen([python.parent / command[0], *command[1:]]) as program:
        try:
            return program.wait()
        except KeyboardInterrupt:
            program.wait()  # it was told too; let it clean up
            raise


def environment(extra: str, *, home: Path = HERE / ".venv", pins: list[str] | None = None) -> Path:
    """The Python of a virtual environment with the package and the extra; made when it is not there.

    A stamp, written last, says what is inside: without it the environment is half-made.
    """
    python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = home / f"made-for-{extra}"
    wanted = fingerprint(pins)
    if stamp.exists() and stamp.read_text() == wanted and works(python):
        return python
    start = time.monotonic()
    print(f"== preparing {home.name} for {extra} ...", flush=True)
    if not (any(home.glob("made-for-*")) and works(python)):
        shutil.rmtree(home, ignore_errors=True)
        quietly([sys.executable, "-m", "venv", home], "no venv (on Debian: apt install python3-venv)")
    install: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "-c",
        TOOLS,
        "-e",
        f".[{extra}]",
        *(pins or []),
    ]
    quietly(install, "pip failed")
    stamp.write_text(wanted)
    print(f"== {home.name} is ready, {time.monotonic() - start:.1f} s", flush=True)
    return python


def fingerprint(pins: list[str] | None) -> str:
    """What an environment is made from: it changes when anything of that does."""
    files = (HERE / "pyproject.toml").read_bytes() + (HERE / TOOLS).read_bytes()
    origin = files + f"{HERE} {pins}".encode()
    return hashlib.sha256(origin).hexdigest()


def works(python: Path) -> bool:
    """Whether it starts, has pip and is the Python that runs this; not so after the system's has changed."""
    question = "import pip, sys; print(sys.version)"
    try:
        answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False).stdout
    except OSError:
        return False
    return answer.strip() == sys.version.strip()


def quietly(command: list[str | Path], complaint: str) -> None:
    """Run it without a word; on failure show all it said, and stop."""
    environ = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environ, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{done.stdout}\n== {complaint}: {' '.join(map(str, command))}")


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
