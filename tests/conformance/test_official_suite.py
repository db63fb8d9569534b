"""The official conformance suite through three edges behind a balancer without affinity, for 2026-07-28."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.conformance.suite import FAILED, Suite, Verdict, expected_failures
from tests.kit.balancer import Balancer
from tests.kit.node import install

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
BASELINE = HERE / "expected_failures.yml"

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
    async with (
        Fleet(target=HERE / "app.py", edges=3, workers=1) as fleet,
        Balancer(fleet.urls) as balancer,
    ):
        suite = Suite(installed=installed, url=balancer.url, baseline=BASELINE, results=results)
        with anyio.fail_after(WITHIN):
            required = await suite.required()
            unscored = {name: await suite.scenario(name) for name in UNSCORED}
        return Outcome(required=required, unscored=unscored, served=balancer.served)


def test_only_what_is_expected_fails_of_the_required_scenarios(outcome: Outcome) -> None:
    """Nothing fails that is not listed, and nothing is listed that passes."""
    assert outcome.required.accepted, outcome.required.explained(expected_failures(BASELINE))


@pytest.mark.parametrize("scenario", UNSCORED)
def test_only_what_is_expected_fails_of_an_unscored_scenario(outcome: Outcome, scenario: str) -> None:
    """The extension's and the pending scenarios are held to the same list."""
    verdict = outcome.unscored[scenario]
    assert verdict.accepted, verdict.explained(expected_failures(BASELINE))


@pytest.mark.parametrize("scenario", TOOLS)
def test_a_tools_scenario_passes(outcome: Outcome, scenario: str) -> None:
    """Tools are whole: each check passes, and none is in the list."""
    checks = outcome.required.checks[scenario]
    assert checks
    assert [check for check in checks if check.status in FAILED] == []
    assert [entry for entry in expected_failures(BASELINE) if entry.partition(":")[0] == scenario] == []


def test_no_scenario_was_left_out(outcome: Outcome) -> None:
    """The suite ran all it requires and all it does not score, and each looked at something."""
    ran = outcome.required.checks
    assert len(ran) == REQUIRED + len(UNSCORED)
    assert set(UNSCORED) <= set(ran)
    assert {name for name in ran if name.startswith("tools-")} == set(TOOLS)
    assert [name for name, checks in ran.items() if not checks] == []


def test_each_expected_failure_names_what_was_looked_at(outcome: Outcome) -> None:
    """The suite says nothing of an entry that fits no scenario or check: such a one would stay for ever."""
    ran = outcome.required.checks
    known = {*ran, *(f"{check.scenario}:{check.id}" for checks in ran.values() for check in checks)}
    assert expected_failures(BASELINE) - known == set()


def test_the_edges_shared_the_requests(outcome: Outcome) -> None:
    """No affinity: each edge had every third request."""
    assert min(outcome.served) > 0
    assert max(outcome.served) - min(outcome.served) <= 1
