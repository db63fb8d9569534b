"""The official conformance suite through three edges behind a balancer without affinity, for 2026-07-28."""

from __future__ import annotations

from dataclasses import dataclass
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
"""What the suite runs with the required set and keeps out of its verdict; we hold ourselves to these as well."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What all runs against one fleet have shown."""

    required: Verdict
    unscored: dict[str, Verdict]
    served: list[int]
    """How many requests each edge was handed."""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Run everything once; the tests only look at what came out."""
    return anyio.run(_run, install(HERE), tmp_path_factory.mktemp("conformance"))


async def _run(installed: Path, results: Path) -> Outcome:
    """Run all with one worker, whose lists its own tools change, and what is of tasks with two."""
    with anyio.fail_after(WITHIN):
        async with through_three_edges(APP, installed, results, workers=1) as (suite, balancer):
            required = await suite.required()
            unscored = {name: await suite.scenario(name) for name in UNSCORED if not name.startswith("tasks-")}
            served = balancer.served
        async with through_three_edges(APP, installed, results, workers=2) as (suite, _):
            unscored |= {name: await suite.scenario(name) for name in UNSCORED if name.startswith("tasks-")}
    return Outcome(required=required, unscored=unscored, served=served)


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


def test_the_edges_shared_the_requests(outcome: Outcome) -> None:
    """No affinity: each edge had every third request."""
    assert min(outcome.served) > 0
    assert max(outcome.served) - min(outcome.served) <= 1
