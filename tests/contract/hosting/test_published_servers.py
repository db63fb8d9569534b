"""Published servers through a fleet: what clients see is what the servers say, member for member."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from mcpfleet.sources.source import Command, Source
from tests.contract.fleet.vault_app import post
from tests.contract.hosting.hosting_harness import hosted_fleet
from tests.kit.node import NODE, install
from tests.kit.tree import ROOT
from tests.kit.venv import environment_of
from tests.unit.edge.asgi import MODERN, request

SERVERS: Final = ROOT / "tests" / "fleet" / "servers"
HELLO: Final = {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
}  # fmt: skip


def npm(package: str) -> list[str]:
    folder = install(SERVERS) / "node_modules" / "@modelcontextprotocol" / package
    [file] = set(json.loads((folder / "package.json").read_text())["bin"].values())
    return [str(NODE), str(folder / file)]


def pypi(module: str) -> list[str]:
    return [str(environment_of(SERVERS / "requirements.lock")), "-m", module]


def chosen(name: str, folder: Path) -> tuple[list[str], str, dict[str, Any]]:
    """The command of a server, and a call of it."""
    match name:
        case "memory":
            return npm("server-memory"), "read_graph", {}
        case "filesystem":
            return [*npm("server-filesystem"), str(folder)], "read_text_file", {"path": f"{folder}/note.txt"}
        case "time":
            when = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
            return pypi("mcp_server_time"), "convert_time", when
        case _:
            return pypi("mcp_server_fetch"), "fetch", {"url": "no url"}


def direct(words: list[str], *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """Start a server, ask it one after the other, and return its results."""
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for number, (method, params) in enumerate((("initialize", HELLO), *requests)):
            lines = [{"jsonrpc": "2.0", "id": number, "method": method, "params": params}]
            lines += [] if number else [{"jsonrpc": "2.0", "method": "notifications/initialized"}]
            process.stdin.write(json.dumps(lines[0]).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = {}
            while answer.get("id") != number or "method" in answer:
                answer = json.loads(process.stdout.readline())
            found.append(answer["result"])
            for line in lines[1:]:
                process.stdin.write(json.dumps(line).encode() + b"\n")
        process.terminate()
    return found[1:]


@pytest.mark.rule("B1", "B2")
@pytest.mark.parametrize("name", ["memory", "filesystem", "time", "fetch"])
async def test_lists_and_results_are_those_of_the_server(name: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("tea")
    words, tool, arguments = chosen(name, tmp_path)
    called = {"name": tool, "arguments": arguments}
    listed, result = direct(words, ("tools/list", {}), ("tools/call", called))
    served = Source(name=name, way=Command(words=tuple(words), cwd=tmp_path), isolation="shared")
    async with hosted_fleet(served) as fleet, fleet.http() as http:
        there = (await post(http, None, "tools/list", {})).json()["result"]["tools"]
        headers = {
            "accept": "application/json, text/event-stream", "mcp-protocol-version": MODERN,
            "mcp-method": "tools/call", "mcp-name": tool,
        }  # fmt: skip
        answer = (await http.post("/mcp", json=request("tools/call", called), headers=headers)).json()["result"]
    by_name = {each["name"]: each for each in there}
    assert by_name == {each["name"]: each for each in listed["tools"]}
    assert {key: value for key, value in answer.items() if key not in ("_meta", "resultType")} == {
        key: value for key, value in result.items() if key != "_meta"
    }
