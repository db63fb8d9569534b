"""docs/bring.md: the file of a client, served by two edges; each command prints what the page shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.kit.commands import mcpfleet
from tests.kit.dev_terminal import Terminal, dev
from tests.kit.node import HOME, NODE, environment, install
from tests.kit.pages import headings, section, titled
from tests.kit.tree import ROOT

PAGE: Final = "docs/bring.md"
SERVERS: Final = Path(__file__).with_name("servers")
NPX: Final = HOME / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
COMMAND: Final = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page's files. npx finds the packages here, so it fetches none."""
    made = tmp_path_factory.mktemp("bring")
    (made / "node_modules").symlink_to(install(SERVERS) / "node_modules")
    for name in (".mcp.json", "fleet.toml"):
        [text] = [block for step in headings(PAGE) for block in titled(section(PAGE, step), name)]
        (made / name).write_text(text)
    return made


@pytest.fixture(scope="module")
def variables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """An environment with npx, which the wheel of Node has in another place."""
    npx = tmp_path_factory.mktemp("bin") / "npx"
    npx.write_text(f'#!/bin/sh\nexec "{NODE}" "{NPX}" "$@"\n')
    npx.chmod(0o755)
    return {"PATH": f"{npx.parent}:{environment()['PATH']}", "npm_config_offline": "true"}


@pytest.fixture(scope="module")
def served(folder: Path, variables: Mapping[str, str]) -> Iterator[Terminal]:
    """The page's fleet."""
    with dev(".mcp.json", "--edges", 2, directory=folder, environment=variables) as terminal:
        yield terminal


def commands(step: str) -> list[tuple[str, str]]:
    """The commands of a step, each with what the page shows below it."""
    parts = "".join(COMMAND.findall(section(PAGE, step))).split("$ ")[1:]
    return [(command, shown.strip()) for command, _, shown in (part.partition("\n") for part in parts)]


def pattern(shown: str) -> re.Pattern[str]:
    """The output that the page shows, as a pattern: `…` stands for anything."""
    return re.compile(re.escape(shown).replace("…", ".*"), re.DOTALL)


async def run(command: str, names: Mapping[str, str], folder: Path, variables: Mapping[str, str]) -> str:
    words = [names.get(word, word) for word in shlex.split(command)]
    assert words[0] == "mcpfleet"
    words = [str(folder / word) if (folder / word).is_file() else word for word in words[1:]]
    done = await mcpfleet(*words, within=60.0, **dict(variables))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().replace(f"{folder}/", "")


@pytest.mark.rule("B1", "B24")
async def test_each_command_prints_what_the_page_shows(
    folder: Path, variables: Mapping[str, str], served: Terminal
) -> None:
    first, second = await served.ready(2)
    names = {"$URL": first, "$SECOND": second}
    number = 0
    for step in headings(PAGE):
        for command, shown in commands(step):
            if command.startswith("export"):
                continue
            said = await run(command, names, folder, variables)
            assert pattern(shown).fullmatch(said), f"{command}\n{said}"
            number += 1
    assert number > 4


async def test_dev_says_what_it_runs_and_what_it_offers(served: Terminal) -> None:
    await served.ready(2)
    await served.say("runs     memory: npx -y @modelcontextprotocol/server-memory")
    await served.say("runs     files: npx -y @modelcontextprotocol/server-filesystem .")
    await served.say("offers   ")
    assert not any("warning" in line for line in served.errors), served.errors


def test_the_packages_of_the_page_are_those_that_the_tests_lock() -> None:
    named = set(re.findall(r"@modelcontextprotocol/[a-z-]+", (ROOT / PAGE).read_text()))
    assert all(f'"{name}"' in (SERVERS / "package.json").read_text() for name in named)
