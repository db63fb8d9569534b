"""The fleet shows itself to NATS's own tools."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import nats
from mcp import Client
from nats.aio.client import Client as NatsClient

from mcpfleet.testing.fleet import Fleet

APP = Path(__file__).with_name("app.py")
INBOX = "mcpfleet.inbox.operator.test"


async def ask_all(client: NatsClient, verb: str, number: int) -> list[dict[str, object]]:
    """Ask as `nats micro` does: one question, and an answer from every process."""
    subscription = await client.subscribe(f"{INBOX}.{verb}")
    await client.publish(f"$SRV.{verb}", reply=f"{INBOX}.{verb}")
    with anyio.fail_after(5):
        return [json.loads((await subscription.next_msg(timeout=5)).data) for _ in range(number)]


async def test_every_process_answers_as_a_service_of_nats() -> None:
    """PING, INFO and STATS from our own figures, which quote nothing that a caller sent."""
    async with Fleet(APP, edges=2) as fleet:
        async with Client(fleet.urls[0]) as mcp:
            await mcp.call_tool("fail", {"secret": "hunter2"})
        settings = fleet.nats_settings("operator")
        client = await nats.connect(
            settings.nats_url, user="operator", password=settings.nats_password.get_secret_value()
        )
        pings = await ask_all(client, "PING", 7)
        stats = await ask_all(client, "STATS", 7)
        await client.close()
    names = sorted(str(ping["name"]) for ping in pings)
    services = ("authorization", "catalog", "edge", "edge", "subscriptions", "tasks", "worker")
    assert names == [f"mcpfleet-{name}" for name in services]
    assert len({ping["id"] for ping in pings}) == 7
    [worker] = [each for each in stats if each["name"] == "mcpfleet-worker"]
    assert isinstance(worker["endpoints"], list)
    assert sum(endpoint["num_requests"] for endpoint in worker["endpoints"]) == 1
    assert "hunter2" not in json.dumps(stats)
