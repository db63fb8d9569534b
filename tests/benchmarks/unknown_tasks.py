"""Whether a client can tell by the clock another's task, an expired one and one that never was (K8).

    .venv/bin/python -m tests.benchmarks.unknown_tasks --requests 1000

One caller asks a whole fleet on PostgreSQL for each of the three in turn, over one connection. It prints the
distributions of the answers' times. For each pair it draws two at random, and prints how often the first is the slower
one: a half means that time tells nothing. The answers' bytes must be the same, apart from the moment in their head.
That they take the same statement is `test_unknown_foreign_and_expired_take_the_same_statements`.
"""

from __future__ import annotations

import argparse
import bisect
import itertools
import json
import random
import secrets
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx2
from rich.console import Console
from rich.table import Table

from mcpfleet.testing.fleet import Fleet
from tests.benchmarks.tasks import APP
from tests.kit.postgres import postgres_server
from tests.kit.raw import Connection, connected
from tests.kit.tasks import CAPABLE, TaskClient
from tests.kit.wire_bytes import meta

TOKENS: Sequence[Mapping[str, str]] = (
    {"token": "of-ann", "subject": "ann", "tenant": "acme", "audience": "mcp"},
    {"token": "of-bob", "subject": "bob", "tenant": "other", "audience": "mcp"},
)
FOREIGN, EXPIRED, UNKNOWN = "another tenant's", "expired", "unknown"
PAIRS = tuple(itertools.combinations((FOREIGN, EXPIRED, UNKNOWN), 2))
ENVIRONMENT: Mapping[str, str] = {
    "MCPFLEET_AUTHORIZATION": "static",
    "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS}),
    # Expired rows stay for the time of a run.
    "MCPFLEET_TASKS_SWEEP": "60",
}
META = meta("clock", CAPABLE)
EVEN = 0.05
"""How far from a half the share may be that one is the slower of two."""


@dataclass
class Answers:
    """The figures of each kind."""

    took: dict[str, list[float]] = field(default_factory=dict)
    """Milliseconds."""
    bodies: set[tuple[int, bytes, tuple[tuple[str, str], ...]]] = field(default_factory=set)
    """Status, body and head, of all kinds."""


async def ask(connection: Connection, task: str) -> tuple[int, bytes, tuple[tuple[str, str], ...]]:
    """Read a task, and take the bytes of the answer."""
    headers = {"Authorization": "Bearer of-bob"}
    await connection.send("tasks/get", {"taskId": task, "_meta": META}, headers=headers)
    answer = await connection.answer()
    head = tuple(sorted((name, value) for name, value in answer.headers.items() if name != "date"))
    return answer.status, answer.body, head


async def compare(url: str, tasks: Mapping[str, Sequence[str]], requests: int) -> Answers:
    """Ask for each kind so often, in turns whose order is drawn anew each time."""
    answers = Answers({kind: [] for kind in tasks})
    async with connected(url) as connection:
        for kind, number in itertools.product(tasks, range(20)):  # warm
            await ask(connection, tasks[kind][number % len(tasks[kind])])
        for _ in range(requests):
            for kind in random.sample(sorted(tasks), len(tasks)):
                task = random.choice(tasks[kind])
                began = time.perf_counter()
                answer = await ask(connection, task)
                answers.took[kind].append((time.perf_counter() - began) * 1e3)
                answers.bodies.add(answer)
    return answers


async def kinds(fleet: Fleet, many: int = 20) -> dict[str, list[str]]:
    """Tasks of each kind, for bob: ann's, his own that have expired, and none."""
    async with httpx2.AsyncClient() as http:
        ann, bob = (
            TaskClient(http, fleet.urls[0], headers={"Authorization": f"Bearer {each['token']}"}) for each in TOKENS
        )
        foreign = [await ann.start("double", number=1) for _ in range(many)]
        expired = [await bob.start("brief", number=1) for _ in range(many)]
        for task in expired:
            await _gone(bob, task)
    return {FOREIGN: foreign, EXPIRED: expired, UNKNOWN: [secrets.token_urlsafe(24) for _ in range(many)]}


async def _gone(client: TaskClient, task: str) -> None:
    with anyio.fail_after(20):
        while "result" in (await _get(client, task)):  # noqa: ASYNC110  # the store's clock tells nobody
            await anyio.sleep(0.05)


async def _get(client: TaskClient, task: str) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.post("tasks/get", {"taskId": task})).json()
    return answer


def slower(first: Sequence[float], second: Sequence[float]) -> float:
    """How often one of the first is slower than one of the second, of two that are drawn at random."""
    ordered = sorted(second)
    below = sum(bisect.bisect_left(ordered, each) + bisect.bisect_right(ordered, each) for each in first)
    return below / 2 / len(first) / len(second)


def show(answers: Answers) -> bool:
    """Print the distributions; returns whether nothing tells the kinds apart."""
    table = Table(title="tasks/get of what is not there, milliseconds", highlight=False)
    for heading in ("", "p10", "p25", "p50", "p75", "p90", "p99"):
        table.add_column(heading, justify="left" if not heading else "right")
    for kind, took in answers.took.items():
        cuts = statistics.quantiles(took, n=100)
        table.add_row(kind, *(f"{cuts[part - 1]:.2f}" for part in (10, 25, 50, 75, 90, 99)))
    console = Console(width=110, highlight=False)
    console.print(table)
    shares = {pair: slower(answers.took[pair[0]], answers.took[pair[1]]) for pair in PAIRS}
    for (first, second), share in shares.items():
        console.print(f"{first} is slower than {second} in {share:.3f} of all pairs (0.5: time tells nothing)")
    console.print(f"different answers: {len(answers.bodies)}")
    return len(answers.bodies) == 1 and all(abs(share - 0.5) < EVEN for share in shares.values())


async def main(requests: int) -> bool:
    """Run it."""
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(stack.enter_context(postgres_server()).database())
        fleet = await stack.enter_async_context(Fleet(APP, environment={**ENVIRONMENT, "MCPFLEET_STORE_URL": url}))
        return show(await compare(fleet.urls[0], await kinds(fleet), requests))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    sys.exit(not anyio.run(main, parser.parse_args().requests))
