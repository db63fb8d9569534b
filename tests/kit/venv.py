"""Python packages that are no dependency of ours, each set in an environment of its own, exactly as its lock says.

`python -m tests.kit.venv LOCK…` makes environments before tests ask for them.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".mcpfleet" / "python"
"""Where environments are made; git ignores it."""

INSTALL = 120.0
"""Seconds that an installation may take, and as many that one may wait for another process's."""


class InstallError(Exception):
    """Raised when pip or npm could not install a set of packages; the message ends with what it said."""


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
    """Our own pip installs: an environment that has one takes seconds longer."""
    python = str(folder / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--quiet"]
    venv = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    for command in (venv, [*pip, "--no-compile", "--require-hashes", "-r", str(lock)]):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=within)
        except subprocess.CalledProcessError as error:
            message = f"{' '.join(command[:3])} for {lock} ended with {error.returncode}:\n{error.stderr[-4000:]}"
            raise InstallError(message) from error
        except subprocess.TimeoutExpired as error:
            message = f"an environment for {lock} was not ready after {within} s"
            raise InstallError(message) from error


@contextmanager
def locked(path: Path, within: float) -> Iterator[None]:
    """Hold a lock among processes; a process that dies lets go of it."""
    last = time.monotonic() + within
    with path.open("w") as file:
        while not _acquired(file.fileno()):
            if time.monotonic() > last:
                message = f"another process has held {path} for {within} s"
                raise TimeoutError(message)
            time.sleep(0.1)  # The kernel waits for a lock as well, but without an end.
        yield


def _acquired(descriptor: int) -> bool:
    """Try to take the lock of an open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    for each in sys.argv[1:]:
        environment_of(Path(each), within=600)
