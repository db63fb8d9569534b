"""Builds an image's folders without a container engine: a Dockerfile's steps, each run as the command that it is.

Every stage is a folder, and an absolute path of the image is one below it. A step that needs a container (a user, a
root file system of its own) is read, and not done.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_OWN: Final = re.compile(r"(?<![\w./-])/(?=(?:opt|build|app)\b)")
"""Paths of the image that a command names; all others are this machine's."""


@dataclass
class Stage:
    """One stage of an image, as far as it has been built."""

    folder: Path
    base: str
    directory: str = "/"
    """Where its commands run."""
    variables: dict[str, str] = field(default_factory=dict)
    user: str = ""
    entrypoint: str = ""
    words: set[str] = field(default_factory=set)
    """The instructions that it has."""

    def path(self, path: str) -> Path:
        """A path of the image on this machine."""
        absolute = path if path.startswith("/") else f"{self.directory.rstrip('/')}/{path}"
        return self.folder / absolute.lstrip("/")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process in the image, and of those of this machine what any process needs."""
        variables = {name: self.translated(value) for name, value in self.variables.items()}
        path = variables.pop("PATH", "$PATH").replace("$PATH", os.environ.get("PATH", os.defpath))
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MCPFLEET_"))}
        return {**kept, **variables, "PATH": path}

    def translated(self, text: str) -> str:
        """Text of the image with its paths on this machine."""
        return _OWN.sub(f"{self.folder}/", text)


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    """Each instruction's word and the rest of its line."""
    text = dockerfile.read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            word, _, rest = line.strip().partition(" ")
            yield word, rest


def build(dockerfile: Path, context: Path, target: Path, within: float) -> Stage:
    """Build every stage below a folder; returns the last one.

    Raises:
        subprocess.CalledProcessError: a step failed; its output is in the error.
        subprocess.TimeoutExpired: a step took longer than `within` seconds.
    """
    ignored = Path(f"{dockerfile}.dockerignore").read_text().splitlines()
    stages: dict[str, Stage] = {}
    stage = Stage(target, "")
    for word, rest in instructions(dockerfile):
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = stages[name or "last"] = Stage(target / (name or "last"), base)
            stage.folder.mkdir(parents=True)
            continue
        stage.words.add(word)
        if word == "RUN":
            _run(stage, rest, within)
        elif word == "COPY":
            _copy(stage, shlex.split(rest), stages, _Context(context, ignored))
        else:
            _note(stage, word, rest)
    return stage


@dataclass(frozen=True)
class _Context:
    """The folder that an image is built from, without what is ignored."""

    folder: Path
    ignored: list[str]

    def has(self, name: str) -> bool:
        """Whether a name at the top is taken along: the file allows by exception."""
        return any(rule == f"!{name}" for rule in self.ignored)

    def copy(self, name: str, to: Path) -> None:
        """Copy a file, or a folder's content."""
        assert self.has(name), f"{name} is ignored"
        patterns = [rule.removeprefix("**/") for rule in self.ignored if rule.startswith("**/")]
        source = self.folder / name
        if source.is_dir():
            shutil.copytree(source, to, dirs_exist_ok=True, ignore=lambda _, names: {
                each for each in names if any(fnmatch.fnmatch(each, pattern) for pattern in patterns)
            })  # fmt: skip
        else:
            to.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, to / name)


def _note(stage: Stage, word: str, rest: str) -> None:
    """Keep what an instruction says of the stage."""
    match word:
        case "WORKDIR":
            stage.directory = rest
            stage.path(rest).mkdir(parents=True, exist_ok=True)
        case "ENV":
            stage.variables |= dict(pair.split("=", 1) for pair in shlex.split(rest))
        case "USER":
            stage.user = rest
        case "ENTRYPOINT":
            stage.entrypoint = rest
        case "ARG" | "LABEL" | "EXPOSE" | "STOPSIGNAL" | "CMD":
            pass
        case _:
            raise NotImplementedError(f"the instruction {word}")


def _run(stage: Stage, text: str, within: float) -> None:
    command = stage.translated(text)
    # The image's Python is the one that runs the tests.
    if command.startswith("python "):
        command = f"{sys.executable} {command.removeprefix('python ')}"
    subprocess.run(
        ["/bin/sh", "-ec", command], cwd=stage.path(stage.directory), env=stage.environment,
        check=True, capture_output=True, text=True, timeout=within,
    )  # fmt: skip


def _copy(stage: Stage, words: list[str], stages: Mapping[str, Stage], context: _Context) -> None:
    if words[0].startswith("--from="):
        source = stages[words[0].removeprefix("--from=")]
        [_, name, to] = words
        # A virtual environment knows its place: what is moved here is a link to it.
        stage.path(to).parent.mkdir(parents=True, exist_ok=True)
        stage.path(to).symlink_to(source.path(name))
        return
    *names, to = words
    for name in names:
        context.copy(name, stage.path(to))
