"""The official conformance suite of the revisions of 2025 through three edges behind a balancer without affinity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import anyio
import pytest

from mcpfleet.wire.protocol import LEGACY, OLDEST
from tests.conformance.suite import FAILED, Suite, Verdict, through_three_edges
from tests.kit.node import install

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
WITHIN = 100.0
"""Seconds that both runs together may take."""
REQUIRED: Final = 30
"""How many scenarios the suite requires of 2025-11-25: the set is frozen. It requires none of 2025-06-18."""
UNSCORED: Final = ("server-session-lifecycle", "json-schema-2020-12")
"""Scenarios that the suite runs besides; they must pass as well."""
OF_A_SESSION: Final = (
    "logging-set-level",
    "tools-call-with-logging",
    "tools-call-sampling",
    "tools-call-elicitation",
    "resources-subscribe",
    "resources-unsubscribe",
)


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Verdict]:
    """Run everything once; the tests only look at what came out."""
    return anyio.run(_run, install(HERE), tmp_path_factory.mktemp("conformance-of-2025"))


async def _run(installed: Path, results: Path) -> Mapping[str, Verdict]:
    """Run both revisions side by side against one fleet."""
    found: dict[str, Verdict] = {}

    async def run(suite: Suite) -> None:
        found[suite.revision] = await (suite.all() if suite.revision == OLDEST else suite.required())

    with anyio.fail_after(WITHIN):
        async with through_three_edges(HERE / "app_2025.py", installed, results, workers=2) as (suite, balancer):
            async with anyio.create_task_group() as tasks:
                for revision in LEGACY:
                    tasks.start_soon(run, replace(suite, results=results / revision, revision=revision))
            assert min(balancer.served) > 0, "the edges shared the requests"
    return found


@pytest.mark.parametrize("revision", LEGACY)
def test_nothing_fails_of_a_revision_of_2025(verdicts: Mapping[str, Verdict], revision: str) -> None:
    """D11: the suite's own verdict."""
    assert verdicts[revision].accepted, verdicts[revision].explained()


@pytest.mark.parametrize("scenario", UNSCORED)
def test_nothing_fails_of_an_unscored_scenario(verdicts: Mapping[str, Verdict], scenario: str) -> None:
    checks = verdicts[LEGACY[0]].checks[scenario]
    assert checks
    assert [check for check in checks if check.status in FAILED] == [], verdicts[LEGACY[0]].explained()


@pytest.mark.parametrize("revision", LEGACY)
def test_what_needs_a_session_was_run(verdicts: Mapping[str, Verdict], revision: str) -> None:
    """Each looked at something, and the newer revision ran all that it requires."""
    checks = verdicts[revision].checks
    assert [name for name in OF_A_SESSION if not checks.get(name)] == []
    assert revision == OLDEST or len(checks) >= REQUIRED
