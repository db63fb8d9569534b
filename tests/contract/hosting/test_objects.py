"""Server objects of Python files are served by a child, and what they print breaks nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.source import Object, OpenApi, Source, Url
from mcpfleet.worker.hosting import object_server
from mcpfleet.worker.hosting.source_app import SourceApp
from tests.contract.hosting.hosting_harness import hosted_fleet, source

SERVERS = Path(__file__).with_name("object_servers.py")


def of(name: str, target: str) -> Source:
    return Source(name=name, way=Object(target=target))


async def test_objects_of_both_kinds_are_served_by_one_worker() -> None:
    high, low = of("high", f"{SERVERS}:high"), of("low", f"{SERVERS}:low")
    async with hosted_fleet(high, low) as fleet, fleet.client() as client:
        assert (await client.call_tool("add", {"left": 1, "right": 2})).structured_content == {"result": 3}
        assert getattr((await client.call_tool("echo", {"a": 1})).content[0], "text", "") == "{'a': 1}"
        assert not fleet.lines("source wrote no JSON-RPC")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{SERVERS}:other", "it has high, low"),
        (f"{SERVERS}:add", "'add' is a function"),
        (object_server.__file__, "no server object"),
        ("no/such/server.py", "there is no such file"),
    ],
)
def test_a_target_without_one_object_says_what_to_write(target: str, told: str) -> None:
    command = [sys.executable, object_server.__file__, target]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert told in ended.stderr


def test_the_one_object_of_the_first_class_needs_no_name() -> None:
    found = object_server.find(str(SERVERS))
    assert type(found).__name__ == "MCPServer"


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (
            Source(name="crm", way=Url(url="https://crm.example", auth={"kind": "exchange"}), place="fleet.toml:3"),
            "fleet.toml:3: .*'exchange'",
        ),
        (Source(name="api", way=OpenApi(document="api.yaml")), "is an OpenAPI document"),
        (source(isolation="session"), "has the isolation 'session'.*write isolation"),
        (source(asks=("elicitation.form",)), "write asks = "),
    ],
)
def test_what_is_not_built_is_refused_with_a_sentence(refused: Source, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        SourceApp("hosted", (refused,))
