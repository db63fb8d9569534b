"""`examples/board.py` as a host of MCP Apps shows it: in Chromium, by ext-apps' bridge, through two edges."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.kit.node import NODE, environment, install

HERE: Final = Path(__file__).parent
PROJECT: Final = HERE / "apps"
ROOT: Final = HERE.parents[1]
BOARD: Final = ROOT / "examples" / "board.py"
PICTURE: Final = ROOT / "docs" / "board.png"
MOST: Final = 0.01
"""The part of the picture's pixels that may differ."""
DOCUMENT: Final = "ui://board/stock"
BEFORE: Final = [["Lamps", "14"], ["Kettles", "3"], ["Chairs", "9"], ["Clocks", "0"]]


def show(folder: Path, urls: list[str], picture: Path, expected: Path) -> Any:
    """Run the host, and return what it has seen."""
    script = folder / "show.mjs"  # beside its modules, where Node looks for them
    script.write_text((PROJECT / "show.mjs").read_text())
    command: list[str | Path] = [NODE, script, PROJECT, *urls, picture, expected]
    done = subprocess.run(
        command, env=environment(), cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.rule("X9", "X10", "X12", "X16", "X17", "X18")
@pytest.mark.timeout(300)
async def test_a_host_shows_the_board_and_its_button_calls_through_another_edge(tmp_path: Path) -> None:
    """The picture is the one in the documentation. Nothing breaks the policy but a request that was not declared."""
    folder = await anyio.to_thread.run_sync(install, PROJECT)
    async with Fleet(BOARD, edges=2) as fleet:
        seen = await anyio.to_thread.run_sync(show, folder, fleet.urls, tmp_path / "board.png", PICTURE)
    assert seen["tools"] == {
        "deliver": {"resourceUri": DOCUMENT, "visibility": ["app"]},
        "stock": {"resourceUri": DOCUMENT, "visibility": ["model", "app"]},
    }
    assert seen["toolsOf2025"] == seen["tools"], "a session that declared Apps in its handshake has them"
    assert seen["toolsWithoutApps"] == seen["toolsOf2025WithoutApps"] == {"stock": None}
    assert json.loads(seen["textWithoutApps"])["items"][1] == {"name": "Kettles", "count": 3, "least": 6}
    page, view = seen["origins"]
    assert page.startswith("http://127.0.0.1:")
    assert view.startswith("http://localhost:")
    assert (seen["before"], seen["state"]) == (BEFORE, "too few: Kettles, Clocks")
    assert seen["violationsBefore"] == []
    assert seen["differs"] is not None
    assert seen["differs"] <= MOST
    assert seen["calls"] == [{"name": "deliver", "arguments": {"name": "Clocks", "count": 5}}]
    assert seen["after"] == [*BEFORE[:3], ["Clocks", "5"]]
    assert seen["undeclared"] == "TypeError"
    assert [each.partition(" ")[0] for each in seen["violations"]] == ["connect-src"]
    assert seen["stray"] == [], "the request did not leave the browser"
