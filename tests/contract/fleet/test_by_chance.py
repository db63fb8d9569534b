"""Whatever the bus does to messages, every call ends, and no caller is told a falsehood (invariant 6)."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from mcpfleet.bus.memory.faults import Faults
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.app import ObservedApp, is_uncertain, text

SEEDS = range(6)
CALLS = 16
"""At once, of which the workers take half: the others wait, and are placed again."""
ENVIRONMENT = {"MCPFLEET_SLOTS": "3", "MCPFLEET_QUEUE": "1"}
CALLS_SUBJECT = "mcpfleet.pool.*.*.call"
ANSWERS = ("mcpfleet.edge.>", "mcpfleet.process.>", "mcpfleet.pool.*.cancel")
"""Frames, refusals, who is alive, cancels, and the fetching of results."""


class Tally:
    """The callers' answers, by the token of their call."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.uncertain: list[str] = []
        self.not_run: list[MCPError] = []
        self.not_run_tokens: list[str] = []

    async def call(self, client: Client, token: str) -> None:
        try:
            result = await client.call_tool("act", {"token": token})
        except MCPError as error:
            self.not_run.append(error)
            self.not_run_tokens.append(token)
            return
        if is_uncertain(result):
            self.uncertain.append(token)
        else:
            assert text(result) == token
            self.ran.append(token)


@pytest.mark.rule("invariant 6")
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(Faults(doubled=0.2, late=0.3, delay=0.05, subjects=ANSWERS), id="answers doubled and late"),
        pytest.param(Faults(doubled=0.2, late=0.3, delay=0.05, lost=0.1, subjects=ANSWERS), id="answers lost, too"),
        pytest.param(Faults(late=0.3, delay=0.05, lost=0.1, subjects=(CALLS_SUBJECT, *ANSWERS)), id="calls, too"),
    ],
)
async def test_what_was_told_not_run_has_not_and_what_has_a_result_ran_once(
    observed: ObservedApp, faults: Faults
) -> None:
    tally = Tally()
    async with (
        LocalFleet(observed.app, edges=2, workers=2, factor=10, environment=ENVIRONMENT) as fleet,
        fleet.client(0) as first,
        fleet.client(1) as second,
    ):
        for seed in SEEDS:
            fleet.switch.misbehave(replace(faults, seed=seed))
            with anyio.fail_after(10):
                async with anyio.create_task_group() as tasks:
                    for number in range(CALLS):
                        tasks.start_soon(tally.call, (first, second)[number % 2], f"{seed} {number}")
        fleet.switch.misbehave()
    assert len(tally.ran) + len(tally.uncertain) + len(tally.not_run) == len(SEEDS) * CALLS
    assert {error.error.code for error in tally.not_run} <= {-32603}
    assert [token for token in tally.not_run_tokens if observed.effects[token]] == []
    assert [token for token in tally.ran if observed.effects[token] != 1] == []
    assert [token for token in tally.uncertain if observed.effects[token] > 1] == []
    assert len(tally.ran) > len(tally.uncertain), "most calls are not harmed"


@pytest.mark.rule("invariant 6")
async def test_a_doubled_message_of_a_call_that_was_refused_does_not_run_later(observed: ObservedApp) -> None:
    """Its edge was told that it has not run and never will, and has placed the call again."""
    tally = Tally()
    environment = {"MCPFLEET_SLOTS": "1", "MCPFLEET_QUEUE": "0"}
    async with LocalFleet(observed.app, environment=environment) as fleet, fleet.client() as client:
        fleet.switch.misbehave(Faults(doubled=1.0, late=1.0, delay=0.2, subjects=(CALLS_SUBJECT,)))
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(tally.call, client, str(number))
    assert [token for token in tally.not_run_tokens if observed.effects[token]] == []
    assert [token for token in tally.ran if observed.effects[token] != 1] == []
