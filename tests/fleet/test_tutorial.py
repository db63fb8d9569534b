"""docs/tutorial.md: each step's file loads, its commands print what the page shows, and its tests pass."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from mcpfleet.testing.fleet import Fleet
from tests.kit.commands import mcpfleet
from tests.kit.pages import blocks, headings, section, titled
from tests.kit.tree import ROOT

PAGE: Final = "docs/tutorial.md"
LOAD: Final = "import sys; from mcpfleet.app.loading import load; [load(each) for each in sys.argv[1:]]"
FILES: Final = ("cinema.py", "test_cinema.py", "tokens.toml")
STEPS: Final = headings(PAGE)
FIRST, SECOND = "http://127.0.0.1:8000/mcp", "http://127.0.0.1:8001/mcp"


def written(folder: Path, steps: list[str]) -> Path:
    """The files as they are after some steps; returns the application's."""
    for name in FILES:
        parts = [block for step in steps for block in titled(section(PAGE, step), name)]
        (folder / name).write_text("\n\n".join(parts))
    return folder / "cinema.py"


def commands(step: str) -> list[tuple[str, str]]:
    """The commands of a step, each with what the page shows below it."""
    lines = "".join(blocks_of(step)).split("$ ")[1:]
    return [(command, shown) for command, _, shown in (line.partition("\n") for line in lines)]


def blocks_of(step: str) -> list[str]:
    return re.findall(r"^```console\n(.*?)^```", section(PAGE, step), re.MULTILINE | re.DOTALL)


def environment(step: str, folder: Path) -> Mapping[str, str]:
    """The settings with which a step starts `dev`."""
    [line] = re.findall(r"^MCPFLEET_.*$", section(PAGE, step), re.MULTILINE) or [""]
    found = dict(re.findall(r"(MCPFLEET_\w+)=(\S+)", line))
    return {name: str(folder / value) if (folder / value).is_file() else value for name, value in found.items()}


def pattern(shown: str) -> re.Pattern[str]:
    """The output that the page shows, as a pattern: `…` stands for anything, `ID` for a task's id."""
    quoted = re.escape(shown.strip()).replace("…", ".*").replace("ID", r"(?P<id>\S+)")
    return re.compile(quoted, re.DOTALL)


def test_the_file_loads_after_each_step(tmp_path: Path) -> None:
    """Nothing is used before a later step writes it."""
    files = []
    for number in range(1, len(STEPS) + 1):
        (tmp_path / str(number)).mkdir()
        step = written(tmp_path / str(number), STEPS[:number])
        files.append(step.rename(step.with_name(f"cinema_{number}.py")))
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *files], capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("with_tokens", [False, True])
async def test_the_commands_print_what_the_page_shows(tmp_path: Path, *, with_tokens: bool) -> None:
    """In a fleet of the whole file; the step with tokens has its own. A failure is on standard error."""
    application = written(tmp_path, STEPS)
    chosen = [step for step in STEPS if bool(environment(step, tmp_path)) == with_tokens and commands(step)]
    assert chosen
    async with Fleet(application, edges=2, environment=environment(chosen[0], tmp_path)) as fleet:
        names = {"$URL": fleet.urls[0], "$SECOND": fleet.urls[1]}
        for command, shown in [each for step in chosen for each in commands(step)]:
            words = [names.get(word, word) for word in shlex.split(command)]
            if words[0] == "export":
                assert set(words[1:]) <= {f"URL={FIRST}", f"SECOND={SECOND}"}
                continue
            assert words[0] == "mcpfleet"
            done = await mcpfleet(*words[1:])
            found = pattern(shown).fullmatch(done.stdout.strip() or done.stderr.strip())
            assert found is not None, f"{command}\n{done.stdout}{done.stderr}"
            names |= {"ID": found["id"]} if "id" in found.groupdict() else {}


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    written(tmp_path, STEPS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", tmp_path, "-c", os.devnull, "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_every_block_of_python_is_in_one_of_the_files() -> None:
    """A block without a file would not be run."""
    assert blocks(PAGE) == []
    assert len(re.findall(r"^```python ", (ROOT / PAGE).read_text(), re.MULTILINE)) > len(STEPS) // 2
