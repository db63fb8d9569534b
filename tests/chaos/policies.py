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
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
from rich.console import Console

from mcpfleet.contracts.authorization import Revoke
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import Listener
from tests.contract.fleet.policy_app import TARGET, policy, shop
from tests.contract.fleet.test_revocation import operator
from tests.kit.waiting import until

OPEN: Final = "shop://open"
FENCED_WITHIN: Final = 1.0
_CALLERS: Final = 100
_AT_ONCE: Final = 20
"""Streams that open at once."""
_CHANGES_EVERY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Found:
    """What became of the streams."""

    streams: int
    told: int
    """Streams that heard of a change before the policy changed."""
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

        async def listen(number: int) -> None:
            http, token = https[number % 2], f"t{number % _CALLERS}"
            wanted = {"resourceSubscriptions": [OPEN], "toolsListChanged": True}
            while not listeners[number].messages:  # a busy machine refuses some, which ask again
                listeners[number].is_over = False
                await listeners[number].run(http, "/mcp", wanted, token)

        async def publish() -> None:
            while True:
                app.publish(OPEN)
                await anyio.sleep(_CHANGES_EVERY)

        async with anyio.create_task_group() as tasks:
            for number in range(streams):
                tasks.start_soon(listen, number)
                if number % _AT_ONCE == 0:
                    await until(partial(_have_begun, listeners[:number]), within=60)
            await until(lambda: all(each.messages for each in listeners), within=120)
            tasks.start_soon(publish)
            await until(lambda: all(each.uris() for each in listeners), within=60)
            told = sum(1 for each in listeners if each.uris())
            async with operator(fleet) as client:
                await client.revoke(Revoke(kind="policy", id=secrets.token_hex(16)))
            began = time.monotonic()
            await fleet.authorization.kill()
            await anyio.sleep(max(0.0, began + FENCED_WITHIN - time.monotonic()))
            fenced = sum(len(each.uris()) for each in listeners)
            await until(lambda: all(each.is_over for each in listeners), within=lasts + 10)
            last = max(each.ended for each in listeners) - began
            late = sum(len(each.uris()) for each in listeners) - fenced
            tasks.cancel_scope.cancel()
        return Found(streams, told, late, last)


def _have_begun(listeners: list[Listener]) -> bool:
    return all(each.messages for each in listeners)


def main() -> None:
    """Run it, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=4000)
    parser.add_argument("--lasts", type=float, default=30.0)
    given = parser.parse_args()
    Console().print(anyio.run(lambda: change(given.streams, lasts=given.lasts)))


if __name__ == "__main__":
    main()
