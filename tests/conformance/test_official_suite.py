"""The official conformance suite through three edges behind a balancer without affinity, for 2026-07-28."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from tests.conformance.suite import FAILED, Verdict, through_three_edges
from tests.kit.node import install

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
APP = HERE / "app.py"

WITHIN = 170.0
"""Seconds that all runs together may take."""

REQUIRED = 37
"""How many scenarios the suite requires for the revision: the set is frozen."""

TOOLS = (
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
)

UNSCORED = (
    "json-schema-2020-12",
    "http-header-validation",
    "http-custom-header-server-validation",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
"""Scenarios that the suite runs and keeps out of its verdict; they must pass as well."""


@dataclass
class Outcome:
    """The outcome of all runs."""

    required: Verdict = field(init=False)
    unscored: dict[str, Verdict] = field(default_factory=dict)
    served: list[int] = field(default_factory=list)
    """How many requests of the required scenarios each edge was handed."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run everything once; the tests only look at what came out."""
    return anyio.run(_run, install(HERE), tmp_path_factory.mktemp("conformance"))


async def _run(installed: Path, results: Path) -> Outcome:
    """Run all with one worker, whose lists its own tools change, and beside it what is of tasks with two."""
    outcome = Outcome()

    async def run_one() -> None:
        async with through_three_edges(APP, installed, results, workers=1) as (suite, balancer):
            outcome.required = await suite.required()
            outcome.unscored |= await suite.scenarios([name for name in UNSCORED if not name.startswith("tasks-")])
            outcome.served = balancer.served

    async def run_tasks() -> None:
        async with through_three_edges(APP, installed, results, workers=2) as (suite, _):
            outcome.unscored |= await suite.scenarios([name for name in UNSCORED if name.startswith("tasks-")])

    with anyio.fail_after(WITHIN):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_one)
            tasks.start_soon(run_tasks)
    return outcome


@pytest.mark.rule("SEP-2164", "SEP-2322", "SEP-2549")
def test_nothing_fails_of_the_required_scenarios(outcome: Outcome) -> None:
    """The suite's own verdict."""
    assert outcome.required.accepted, outcome.required.explained()


@pytest.mark.parametrize("scenario", UNSCORED)
def test_nothing_fails_of_an_unscored_scenario(outcome: Outcome, scenario: str) -> None:
    """The extension's and the pending scenarios are held to the same, check by check."""
    verdict = outcome.unscored[scenario]
    checks = verdict.checks[scenario]
    assert checks
    assert [check for check in checks if check.status in FAILED] == [], verdict.explained()


@pytest.mark.parametrize("scenario", TOOLS)
def test_a_tools_scenario_passes(outcome: Outcome, scenario: str) -> None:
    """Tools are whole: each check passes."""
    checks = outcome.required.checks[scenario]
    assert checks
    assert [check for check in checks if check.status in FAILED] == []


def test_no_scenario_was_left_out(outcome: Outcome) -> None:
    """The suite ran all it requires and all it does not score, and each looked at something."""
    ran = outcome.required.checks
    assert len(ran) == REQUIRED + len(UNSCORED)
    assert set(UNSCORED) <= set(ran)
    assert {name for name in ran if name.startswith("tools-")} == set(TOOLS)
    assert [name for name, checks in ran.items() if not checks] == []


@pytest.mark.rule("invariant 1")
def test_the_edges_shared_the_requests(outcome: Outcome) -> None:
    """No affinity: each edge had every third request."""
    assert min(outcome.served) > 0
    assert max(outcome.served) - min(outcome.served) <= 1
