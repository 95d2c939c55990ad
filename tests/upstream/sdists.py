"""Get the sdist of an installed package from the package registry, once per machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path

from tests import services

_PATIENCE = 90


def unpacked_sdist(package: str) -> Path:
    """The directory of the sdist of the installed version; the test is skipped where it cannot be had.

    It is kept in ``CATCHUP_SDISTS``, by default a directory for temporary files.
    """
    found = version(package)
    kept = Path(
        os.environ.get("CATCHUP_SDISTS") or Path(tempfile.gettempdir(), f"catchup-sdists-{os.getuid()}")
    )
    home = kept / f"{package}-{found}"
    if not home.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as room:
            made = _unpack(_downloaded(f"{package}=={found}", Path(room)), Path(room))
            if not home.exists():  # another process may have been faster
                made.rename(home)
    return home


def _downloaded(requirement: str, room: Path) -> Path:
    options = ["--no-binary", ":all:", "--no-deps", "--disable-pip-version-check", "--no-input", "-q"]
    command = [sys.executable, "-m", "pip", "download", *options, "-d", str(room), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        complaint = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    except subprocess.TimeoutExpired:
        complaint = f"pip took longer than {_PATIENCE} s"
    found = list(room.glob("*.tar.gz"))
    if not found:
        services.missing("sdists", f"the sdist of {requirement} cannot be downloaded ({complaint})")
    return found[0]


def _unpack(archive: Path, room: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(room, filter="data")
    return next(path for path in room.iterdir() if path.is_dir())
