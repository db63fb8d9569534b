"""A proxy between a client and an edge: what it passes on whole, and what becomes of a call when it gives up."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import psutil
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.kit.proxy import proxied
from tests.kit.raw import connected
from tests.kit.waiting import until

APP = Path(__file__).with_name("app.py")


@pytest.mark.rule("P10")
async def test_a_proxy_that_resets_both_legs_is_one_disconnect_and_one_cancel(tmp_path: Path) -> None:
    """The handler is cancelled once, nothing comes late, and the edge keeps nothing of the call."""
    async with Fleet(APP) as fleet:
        url = fleet.urls[0]
        edge = psutil.Process(fleet.edges[0].pid)
        async with proxied(url) as link, connected(url) as direct:
            await direct.send("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
            straight = await direct.answer()
            descriptors = edge.num_fds()
            async with connected(link.url) as through:
                await through.send("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
                assert (await through.answer()).body == straight.body, "bytes pass as they are"
                await through.send("tools/call", {"name": "hold", "arguments": {"folder": str(tmp_path)}})
                await until((tmp_path / "started").exists)
                link.cut()
                await until((tmp_path / "cancelled").exists)
            (tmp_path / "release").touch()
            with anyio.fail_after(10):
                await direct.send("tools/call", {"name": "echo", "arguments": {"text": "on"}})
                answer = json.loads((await direct.answer()).body)
            await until(lambda: edge.num_fds() <= descriptors)
    assert answer["result"]["content"][0]["text"] == "on"
    assert not (tmp_path / "finished").exists()
