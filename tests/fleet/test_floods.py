"""A flood of malformed messages on NATS is a handful of log lines in each process, and their counts add up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from mcpfleet.app import load
from mcpfleet.cli.child import Child
from mcpfleet.process.pace import AT_ONCE
from mcpfleet.testing.fleet import Fleet
from tests.fleet.test_streams import raw_nats

APP = Path(__file__).with_name("library_app.py")
EACH: Final = 300
"""Messages of each kind."""
HANDFUL: Final = AT_ONCE + 1
"""Lines of one kind: the first ones, and the count of the others."""

Flood = tuple[str, str]
"""A NATS user, and a subject that it may send to; the body is `[`, and there is no header."""


def lines(child: Child, event: str) -> list[dict[str, Any]]:
    """A process's lines of one event."""
    assert child.log is not None
    found = [json.loads(line) for line in child.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def check(child: Child, event: str, number: int) -> None:
    """So many messages were heard, and each is in a line or in a count; few lines are there."""
    found = lines(child, event)
    assert sum(line.get("count", 1) for line in found) == number, event
    assert 1 < len(found) <= HANDFUL, event


def definition() -> str:
    """The digest of a tool that the workers serve."""
    return load(str(APP)).handlers[0].definition.digest


async def send(fleet: Fleet, user: str, subject: str) -> None:
    """Send a flood; NATS has taken all of it then."""
    async with raw_nats(fleet.nats_settings(user), user) as client:
        for _ in range(EACH):
            await client.publish(f"mcpfleet.{subject}", b"[")
        await client.flush()


async def heard(fleet: Fleet, child: Child) -> None:
    """Wait until a process has heard all that NATS has taken for it: it answers in order."""
    [first, *_] = lines(child, "started")
    subject = f"$SRV.PING.mcpfleet-{first['service']}.{first['process']}"
    async with raw_nats(fleet.nats_settings("operator"), "operator") as client:
        inbox = "mcpfleet.inbox.operator.flood"
        answers = await client.subscribe(inbox)
        await client.publish(subject, b"", reply=inbox)
        await answers.next_msg(timeout=10)


@pytest.mark.rule("T23")
async def test_a_flood_of_each_malformed_message_is_a_handful_of_lines() -> None:
    async with Fleet(APP) as fleet:
        [edge], [worker] = fleet.edges, fleet.workers
        [process] = {line["process"] for line in lines(edge, "started")}
        pool = f"pool-{fleet.pool}"
        at_edge: dict[str, list[Flood]] = {
            "malformed alive": [(pool, f"edge.{process}.alive.{fleet.pool}")],
            "malformed hint": [("authorization", "hint.authority"), ("subscriptions", "hint.session")],
            "malformed cancel": [("edge", "session.cancelled")],
            "malformed answer": [("edge", f"session.{process}.answer")],
            "malformed question": [("edge", f"session.{process}.watch")],
        }
        at_worker: dict[str, list[Flood]] = {
            "malformed cancel": [("edge", f"pool.{fleet.pool}.cancel")],
            "expired call": [("edge", f"pool.{fleet.pool}.{definition()}.call")],
        }
        at_services: dict[str, list[Flood]] = {
            "question expired": [("edge", "authorization.admit")],
        }
        for child, floods in ((edge, at_edge), (worker, at_worker), (fleet.services, at_services)):
            for flood in (each for several in floods.values() for each in several):
                await send(fleet, *flood)
            await heard(fleet, child)
            await child.stop(20)
            for event, several in floods.items():
                check(child, event, EACH * len(several))
