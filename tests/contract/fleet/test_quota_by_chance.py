"""The quota of listen streams over three edges, whatever the bus does to what is asked, and when an edge dies."""

from __future__ import annotations

import random
from collections import Counter

import anyio
import httpx2
import pytest
from anyio.abc import TaskGroup

from mcpfleet.bus.memory.faults import Faults
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.listener import ACK, Listener, listening
from tests.contract.fleet.test_stream_permission import ANN, OPEN, fleet, refused
from tests.kit.waiting import until

LIMIT = 8
ENVIRONMENT = {
    "MCPFLEET_PARTITION_STREAMS": f"{LIMIT}",
    "MCPFLEET_STREAMS_LEASED": "0.5",
    "MCPFLEET_SUBSCRIPTIONS_SWEEP": "0.2",
}
LOST = 2.0
"""Seconds of silence after which an edge that died counts no more."""
QUOTA = ("mcpfleet.subscriptions.*", "mcpfleet.inbox.edge.>")
"""The edges' questions and their answers, those of authorization too."""
WANTED = {"resourceSubscriptions": [OPEN]}


class Callers:
    """Callers of one partition, who listen for a while at one edge or another, and come again."""

    def __init__(self, running: LocalFleet, seed: int) -> None:
        self.running = running
        self.open = 0
        self.most = 0
        self.told: Counter[int] = Counter()
        """Their answers."""
        self._chance = random.Random(seed)

    async def run(self, count: int = 24) -> None:
        """Come and go until many were answered either way; at the end all have left."""
        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(self._listen)
            await until(lambda: min(self.told[200], self.told[503]) >= 2 * LIMIT, within=30)
            tasks.cancel_scope.cancel()

    async def _listen(self) -> None:
        while True:
            edge, lasts = self._chance.randrange(len(self.running.edges)), self._chance.uniform(0.0, 1.0)
            stream = Listener()
            async with self.running.http(edge) as http, anyio.create_task_group() as tasks:
                tasks.start_soon(stream.run, http, "/mcp", WANTED, ANN)
                await until(lambda stream=stream: stream.messages or stream.is_over)  # type: ignore[misc]  # mypy infers no lambda with a default
                if stream.messages:
                    self.open += 1
                    self.most = max(self.most, self.open)
                    try:
                        await anyio.sleep(lasts)
                    finally:
                        self.open -= 1
                tasks.cancel_scope.cancel()
            self.told[stream.status] += 1


async def fills(running: LocalFleet, edges: list[int], count: int, tasks: TaskGroup) -> None:
    """Have so many streams opened, in turns at these edges; each is asked for again while there is no room yet."""
    for number in range(count):
        edge, stream = edges[number % len(edges)], Listener()
        while stream.status != 200:
            stream = Listener()
            tasks.start_soon(_listen, running, edge, stream)
            await until(lambda stream=stream: stream.messages or stream.is_over)  # type: ignore[misc]  # mypy infers no lambda with a default
        assert stream.kinds() == [ACK]


async def _listen(running: LocalFleet, edge: int, stream: Listener) -> None:
    async with running.http(edge) as http:
        await stream.run(http, "/mcp", WANTED, ANN)


@pytest.mark.rule("D7")
@pytest.mark.parametrize("seed", range(2))
async def test_a_quota_holds_over_three_edges_and_lost_answers_lose_none_of_it(seed: int) -> None:
    """Questions and answers are lost, doubled and late; afterwards there is room for just as many as ever."""
    faults = Faults(lost=0.05, doubled=0.2, late=0.3, delay=0.1, subjects=QUOTA, seed=seed)
    async with fleet(edges=3, environment=ENVIRONMENT) as running, anyio.create_task_group() as tasks:
        callers = Callers(running, seed)
        running.switch.misbehave(faults)
        await callers.run()
        running.switch.misbehave()
        assert LIMIT / 2 < callers.most <= LIMIT, "they came near it, and never beyond"
        with anyio.fail_after(10):
            await fills(running, [0, 1, 2], LIMIT, tasks)
        for edge in range(3):
            assert await refused(running, ANN, edge, **WANTED) == 503
        tasks.cancel_scope.cancel()


@pytest.mark.rule("D7")
async def test_the_share_of_a_dead_edge_is_soon_free_at_the_others_and_no_more() -> None:
    """By default after 20 s: half of a minute is never reached."""
    async with (
        fleet(edges=3, environment={**ENVIRONMENT, "MCPFLEET_EDGE_LOST": f"{LOST}"}) as running,
        running.http(1) as http,
        listening(http, "/mcp", 2, token=ANN, resourceSubscriptions=[OPEN]) as rest,
        anyio.create_task_group() as tasks,
    ):
        with pytest.RaisesGroup(*[httpx2.RemoteProtocolError] * (LIMIT - 2), flatten_subgroups=True):
            async with (
                running.http(0) as dying,
                listening(dying, "/mcp", LIMIT - 2, token=ANN, resourceSubscriptions=[OPEN]) as streams,
            ):
                assert await refused(running, ANN, 2, **WANTED) == 503
                await running.edges[0].kill()
                assert await refused(running, ANN, 2, **WANTED) == 503
                await until(lambda: all(stream.is_over for stream in streams))
        with anyio.fail_after(2 * LOST):
            await fills(running, [1, 2], LIMIT - 2, tasks)
        for edge in (1, 2):
            assert await refused(running, ANN, edge, **WANTED) == 503
        assert [stream.kinds() for stream in rest] == [[ACK]] * 2
        tasks.cancel_scope.cancel()
