"""The short forms of the programs of tasks: parts are killed, and PostgreSQL stands still, while tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.sleepers import stop_and_go_on
from tests.chaos.task_deaths import deaths
from tests.chaos.tasks import SHORT, WAYS, kill_while_tasks_run
from tests.chaos.tasks_outage import LONG, Way, stand_still
from tests.kit.postgres import Postgres, postgres_server


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.mark.rule("K21")
@pytest.mark.timeout(120)
async def test_each_task_ends_once_whatever_is_killed_and_its_handle_is_always_known(
    postgres: Postgres, tmp_path: Path
) -> None:
    """K7, K8, K21: by handles, ends, and effects under the steps' keys."""
    found = await kill_while_tasks_run(postgres, tmp_path, tasks=40, seed=7, longest=1.0, pause=0.7, settings=SHORT)
    assert not found.broken
    assert len(found.makers.kept) == 40
    assert set(found.killed) == set(WAYS)


@pytest.mark.parametrize("way", ["paused", "stopped"])
async def test_no_task_is_started_again_or_lost_while_postgresql_stands_still(
    postgres: Postgres, tmp_path: Path, way: Way
) -> None:
    """The outage is longer than a lease, and every lease gets its whole time after it."""
    found = await stand_still(postgres, tmp_path, way, seconds=2.5, lasts=4.0, tasks=20, settings=SHORT)
    assert found.is_whole, found
    assert len(found.makers.kept) == LONG + 20


@pytest.mark.rule("D8")
async def test_a_task_without_steps_is_completed_whenever_its_worker_is_killed() -> None:
    """D8, with a lease of 2 s in place of 10: in that time, and its own, and what looking and starting take."""
    lasts = 0.6
    found = await deaths((0.0, lasts - 0.1), lasts=lasts, settings=SHORT)
    for number, each in enumerate(found, 1):
        assert (each.status, each.result, each.runs) == ("completed", str(2 * number), 2)
        assert each.taken < 2 + lasts + 5


@pytest.mark.rule("K26")
@pytest.mark.timeout(120)
async def test_a_worker_that_was_stopped_begins_no_step_of_a_task_that_another_has() -> None:
    """In threads as on the loop: the first goes on when its steps are due, after its lease has ended."""
    found = await stop_and_go_on(stops=1, tasks=4, lasts=0.5, settings=SHORT)
    assert found.taken_over == 4
    assert not found.doubled
    assert not found.wrong
