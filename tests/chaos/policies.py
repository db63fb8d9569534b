"""Changes the operator's policy over many streams, and kills authorization: nothing passes the fence, and leases end.

    .venv/bin/python -m tests.chaos.policies --streams 4000

Streams of a hundred callers at two edges watch a resource that changes all the time. The fence must stand within a
second of the operator's command (X52). Authorization dies right after it, so no stream may hear anything more, but
comments, until its lease ends it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.abc import TaskGroup
from rich.console import Console

from mcpfleet.contracts.authorization import Revoke
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import Listener
from tests.contract.fleet.policy_app import TARGET, policy, shop
from tests.contract.fleet.test_revocation import operator
from tests.kit.waiting import until

OPEN: Final = "shop://open"
FENCES: Final = "mcpfleet.edge.streams.fences"
_CALLERS: Final = 100
_AT_ONCE: Final = 32
"""Streams that open at once."""
_STREAMS_A_SECOND: Final = 2_000
"""Streams that hear of changes, each second: a change of a resource that all watch comes accordingly rarely."""
_WITHIN: Final = 1_800.0
"""Seconds that any step may take on a busy machine."""


@dataclass(frozen=True, slots=True)
class Found:
    """The ends of the streams."""

    streams: int
    told: int
    """Streams that heard of a change before the policy changed."""
    fenced_after: float
    """Seconds from the change of policy until all streams were fenced (X52: 1 s)."""
    late: int
    """Changes that came after the fence."""
    ended_after: float
    """Seconds from the change of policy to the last stream's end."""


async def change(streams: int, *, lasts: float) -> Found:
    """Open streams, change the policy, and kill authorization.

    Args:
        streams: how many.
        lasts: seconds of a stream's lease.
    """
    policy._reset()
    app = shop()
    tokens = [{"token": f"t{number}", "subject": f"s{number}", "audience": "mcp"} for number in range(_CALLERS)]
    environment = {
        "MCPFLEET_AUTHORIZATION": "static",
        "MCPFLEET_TOKENS": json.dumps({"tokens": tokens}),
        "MCPFLEET_POLICY": TARGET,
        "MCPFLEET_PERMISSION_LASTS": str(lasts),
        "MCPFLEET_PARTITION_STREAMS": str(streams),
    }
    async with LocalFleet(app, environment=environment, edges=2) as fleet, AsyncExitStack() as stack:
        https = [await stack.enter_async_context(fleet.http(number)) for number in range(2)]
        listeners = [Listener(number) for number in range(streams)]
        places = anyio.Semaphore(_AT_ONCE)

        async def listen(number: int) -> None:
            http, token = https[number % 2], f"t{number % _CALLERS}"
            wanted = {"resourceSubscriptions": [OPEN], "toolsListChanged": True}
            while not listeners[number].messages:  # a busy machine refuses some, which ask again
                listeners[number].is_over = False
                await listeners[number].run(http, "/mcp", wanted, token)

        async def open_one(number: int, tasks: TaskGroup) -> None:
            async with places:
                tasks.start_soon(listen, number)
                await until(lambda: listeners[number].messages, within=_WITHIN)

        async def publish() -> None:
            while True:
                app.publish(OPEN)
                await anyio.sleep(0.1 + streams / _STREAMS_A_SECOND)

        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as opening:
                for number in range(streams):
                    opening.start_soon(open_one, number, tasks)
            _say(f"{streams} streams are open")
            tasks.start_soon(publish)
            await until(lambda: all(each.uris() or each.is_over for each in listeners), within=_WITHIN)
            told = sum(1 for each in listeners if each.uris())
            _say(f"{told} of them heard of a change; now the policy changes")
            began = time.monotonic()
            async with operator(fleet) as client:
                await client.revoke(Revoke(kind="policy", id=secrets.token_hex(16)))
            await fleet.authorization.kill()
            await until(lambda: fenced(fleet) >= sum(not each.is_over for each in listeners), within=_WITHIN)
            fenced_after = time.monotonic() - began
            _say(f"all are fenced after {fenced_after:.2f} s; now their leases end them")
            heard = await quiet(listeners)
            await until(lambda: all(each.is_over for each in listeners), within=lasts + _WITHIN)
            last = max(each.ended for each in listeners) - began
            late = sum(len(each.uris()) for each in listeners) - heard
            tasks.cancel_scope.cancel()
        return Found(streams, told, fenced_after, late, last)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def fenced(fleet: LocalFleet) -> int:
    """Return how many streams the edges have fenced."""
    families = [family for edge in fleet.edges for family in edge.process.telemetry.metrics.read()]
    return int(sum(point.value for each in families if each.name == FENCES for point in each.points))


async def quiet(listeners: list[Listener]) -> int:
    """Wait until clients have read what was written before the fence; return how many changes they heard."""
    while True:
        heard = sum(len(each.uris()) for each in listeners)
        await anyio.sleep(0.2)
        if heard == sum(len(each.uris()) for each in listeners):
            return heard


def main() -> None:
    """Run it, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=4000)
    parser.add_argument("--lasts", type=float, default=60.0)
    given = parser.parse_args()
    Console().print(anyio.run(lambda: change(given.streams, lasts=given.lasts)))


if __name__ == "__main__":
    main()
