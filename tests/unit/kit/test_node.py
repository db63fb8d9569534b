"""Node from the virtual environment: projects are installed whole, once, and by one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.node import NODE, environment, install
from tests.kit.venv import InstallError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without dependencies, for which npm needs no registry."""
    folder = tmp_path / "project"
    folder.mkdir()
    named = {"name": "alone", "version": "1.0.0"}
    lock = {**named, "lockfileVersion": 3, "requires": True, "packages": {"": named}}
    (folder / "package.json").write_text(json.dumps(named))
    (folder / "package-lock.json").write_text(json.dumps(lock))
    return folder


def digest_of(project: Path) -> str:
    """Name a project's lock."""
    return hashlib.sha256((project / "package-lock.json").read_bytes()).hexdigest()[:32]


def test_node_is_the_virtual_environments() -> None:
    """`node` is Node 22 or later of this environment, by its path and by name."""
    assert NODE.is_relative_to(sys.prefix)
    done = subprocess.run(["node", "-p", "process.execPath"], env=environment(), check=True, capture_output=True)
    assert Path(done.stdout.decode().strip()) == NODE
    version = subprocess.run([NODE, "--version"], check=True, capture_output=True).stdout
    assert int(version.lstrip(b"v").split(b".")[0]) >= 22


def test_a_lock_is_installed_once(project: Path, tmp_path: Path) -> None:
    """The folder is named by the lock's digest, and is used as it is from then on."""
    installed = install(project, tmp_path / "cache")
    assert installed == tmp_path / "cache" / digest_of(project)
    (installed / "used").touch()
    assert install(project, tmp_path / "cache") == installed
    assert (installed / "used").exists()


def test_what_was_cut_short_is_made_anew(project: Path, tmp_path: Path) -> None:
    """The remains of a killed installation are neither used nor kept."""
    part = tmp_path / "cache" / f"{digest_of(project)}.part"
    part.mkdir(parents=True)
    (part / "half").touch()
    assert not (install(project, tmp_path / "cache") / "half").exists()
    assert not part.exists()


def test_two_at_once_share_one_installation(project: Path, tmp_path: Path) -> None:
    """The second waits for the first, and finds its work done."""
    with ThreadPoolExecutor() as threads:
        folders = list(threads.map(lambda _: install(project, tmp_path / "cache"), range(2)))
    assert folders[0] == folders[1]
    assert (folders[0] / "package.json").exists()


def test_a_lock_that_is_never_let_go_is_an_error(project: Path, tmp_path: Path) -> None:
    """The wait for another process has an end."""
    cache = tmp_path / "cache"
    cache.mkdir()
    with (cache / f"{digest_of(project)}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another process"):
            install(project, cache, within=0.2)


def test_what_npm_says_is_in_the_error(project: Path, tmp_path: Path) -> None:
    """A project that npm cannot read is refused, with npm's own words."""
    (project / "package.json").write_text("{")
    with pytest.raises(InstallError, match="EJSONPARSE"):
        install(project, tmp_path / "cache")
