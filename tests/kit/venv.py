"""Python packages that are no dependency of ours, each set in an environment of its own, exactly as its lock says."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.kit.node import INSTALL, InstallError, locked

CACHE = Path(__file__).parents[2] / ".mcpfleet" / "python"
"""Where environments are made; git ignores it."""


def environment_of(lock: Path, cache: Path = CACHE, within: float = INSTALL) -> Path:
    """Make an environment with what a lock file names, once, and tell the path of its Python.

    An installation that was cut short is made anew.

    Raises:
        InstallError: pip failed, or needed more than `within` seconds.
        TimeoutError: another process held the lock for that long.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:32]
    made = cache / digest
    done = made / "done"
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{digest}.lock", within):
        if not done.exists():  # an environment cannot be renamed, so a file says that it is whole
            shutil.rmtree(made, ignore_errors=True)
            _make(made, lock, within)
            done.touch()
    return made / "bin" / "python"


def _make(folder: Path, lock: Path, within: float) -> None:
    install = ["pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(lock)]
    for command in ([sys.executable, "-m", "venv", str(folder)], [str(folder / "bin" / "python"), "-m", *install]):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=within)
        except subprocess.CalledProcessError as error:
            message = f"{' '.join(command[:3])} for {lock} ended with {error.returncode}:\n{error.stderr[-4000:]}"
            raise InstallError(message) from error
        except subprocess.TimeoutExpired as error:
            message = f"an environment for {lock} was not ready after {within} s"
            raise InstallError(message) from error
