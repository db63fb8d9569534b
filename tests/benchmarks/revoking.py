"""Ends the permission of some of many streams on three edges: how soon they end, and what authorization is asked then.

    .venv/bin/python -m tests.benchmarks.revoking --streams 6000 --revoked 2000

Each stream has a credential of its own, so that nothing is asked for once and holds for several. No permission falls
due meanwhile: what is asked is asked for the revocation. Seconds count from when the operator's command, which has its
link to NATS by then, asks authorization for it.
"""

from __future__ import annotations

import argparse
import json
import secrets
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio
from rich.console import Console

from mcpfleet.bus.bus import Bus
from mcpfleet.cli.operate import on_bus, publish
from mcpfleet.contracts.authorization import AuthorizationClient, Revoke
from mcpfleet.testing.fleet import Fleet
from tests.contract.fleet.listener import ACK, END, UPDATED
from tests.kit.crowd import Heard, crowd
from tests.kit.exported import exported
from tests.kit.waiting import until

APP: Final = Path(__file__).parents[1] / "fleet" / "library_app.py"
BOOK: Final = "library://books/1"
EDGES: Final = 3
_ENDS_WITHIN: Final = 30.0
_MORE: Final = 0.5
"""Seconds in which what comes too late would come."""


@dataclass(frozen=True)
class Findings:
    """The outcome of one revocation."""

    seconds: tuple[float, ...]
    """Until each stream that it concerns ended, in order."""
    ends: frozenset[tuple[str, ...]]
    """The kinds of messages that these streams had."""
    results: frozenset[str]
    """By which they ended, as JSON."""
    others: frozenset[tuple[str, ...]]
    """The kinds of messages that the others had of one change after it."""
    slowest: float
    """Seconds until the last of the others was told."""
    questions: int
    """Credentials that authorization was asked about."""

    def within(self, share: float) -> float:
        """Seconds within which this share of the streams ended."""
        return self.seconds[max(0, round(len(self.seconds) * share) - 1)]


async def revoking(streams: int, revoked: int) -> Findings:
    """Open streams at three edges, and revoke the subject of some."""
    names = [f"{'ann' if number < revoked else 'bob'}-{number}" for number in range(streams)]
    tokens = [{"token": name, "subject": name.split("-")[0], "audience": "mcp"} for name in names]
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "tokens.json").write_text(json.dumps({"tokens": tokens}))
        environment = {
            "MCPFLEET_AUTHORIZATION": "static",
            "MCPFLEET_TOKENS_FILE": str(folder / "tokens.json"),
            "MCPFLEET_PARTITION_STREAMS": str(streams),
            "MCPFLEET_PERMISSION_LASTS": "3600",
        }
        fleet = await stack.enter_async_context(Fleet(APP, edges=EDGES, environment=environment))
        concerned: list[Heard] = []
        others: list[Heard] = []
        for number, url in enumerate(fleet.urls):
            for part, streams_of in ((names[:revoked], concerned), (names[revoked:], others)):
                opened = crowd(url, part[number::EDGES], resourceSubscriptions=[BOOK])
                streams_of.extend(await stack.enter_async_context(opened))
        return await _revoke(fleet, concerned, others)


async def _revoke(fleet: Fleet, concerned: list[Heard], others: list[Heard]) -> Findings:
    operator = fleet.nats_settings("operator")
    before = await _checked(fleet)
    began = 0.0

    async def revoke(bus: Bus) -> int:
        nonlocal began
        began = time.monotonic()
        await AuthorizationClient(bus).revoke(Revoke(kind="subject", name="ann", id=secrets.token_hex(16)))
        return 0

    assert await on_bus(operator, "revoke", revoke) == 0
    published = time.monotonic()
    assert await publish(operator, "mcp", [BOOK]) == 0
    await until(lambda: all(END in stream.kinds for stream in concerned), within=_ENDS_WITHIN)
    await until(lambda: all(len(stream.kinds) > 1 for stream in others), within=_ENDS_WITHIN)
    await anyio.sleep(_MORE)
    return Findings(
        tuple(sorted(stream.ended - began for stream in concerned)),
        frozenset(tuple(stream.kinds) for stream in concerned),
        frozenset(json.dumps({**stream.result, "_meta": None}, sort_keys=True) for stream in concerned),
        frozenset(tuple(stream.kinds) for stream in others),
        max(stream.times[1] for stream in others) - published,
        await _checked(fleet) - before,
    )


async def _checked(fleet: Fleet) -> int:
    """How many credentials authorization was asked about."""
    figures = (await exported(fleet)).items()
    return int(sum(value for name, value in figures if name.startswith("mcpfleet_authorization_questions_total")))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=6_000)
    parser.add_argument("--revoked", type=int, default=2_000)
    options = parser.parse_args()
    done = anyio.run(revoking, options.streams, options.revoked)
    console = Console(width=120, highlight=False)
    console.print(
        f"{options.revoked:,} of {options.streams:,} streams on {EDGES} edges were revoked; seconds until they ended: "
        f"half {done.within(0.5):.2f}, 99 in 100 {done.within(0.99):.2f}, all {done.within(1.0):.2f}"
    )
    console.print(f"the last of the others heard of a change {done.slowest:.2f} s after it")
    console.print(f"authorization was asked about {done.questions:,} credentials")
    assert done.ends == {(ACK, END)}, "something was told after the revocation"
    assert done.others == {(ACK, UPDATED)}, "others noticed"
