"""The completion of a task whose handler has returned, and the room for more tasks."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from pydantic_core import to_json

from mcpfleet.contracts.call import FrameKind
from mcpfleet.contracts.pool_tasks import Release, Settle
from mcpfleet.contracts.tasks import Status
from mcpfleet.worker.tasks.holdings import Holding, Holdings
from mcpfleet.worker.tasks.task_end import write_of
from mcpfleet.worker.work import TRY_AGAIN, Ended, TaskKey

ID = "t" * 32
GIVEN_BACK = Release(id=ID, fence=3)
RESULT, FAILURE = (b'{"_meta":{},"content":[],"isError":%b}' % flag for flag in (b"false", b"true"))
ERROR = to_json({"code": -31000, "message": "no\x00 paper"})


def ended(body: bytes, kind: FrameKind = FrameKind.RESULT, line: str | None = None) -> Ended:
    return Ended(TaskKey(ID, 3), kind, body, line)


def holding(**said: Any) -> Holding:
    return Holding(ID, 3, "d" * 32, 0.0, **said)


@pytest.mark.rule("M68", "K10")
@pytest.mark.parametrize(
    ("held", "frame", "status"),
    [
        (holding(), ended(RESULT), Status.COMPLETED),
        (holding(), ended(FAILURE), Status.COMPLETED),
        (holding(), ended(ERROR, FrameKind.ERROR), Status.FAILED),
        (holding(is_cancelled=True), ended(b""), Status.CANCELLED),
        (holding(is_cancelled=True), ended(FAILURE), Status.CANCELLED),
        (holding(is_cancelled=True), ended(ERROR, FrameKind.ERROR), Status.CANCELLED),
        (holding(is_cancelled=True), ended(RESULT), Status.COMPLETED),
        (holding(is_cancelled=True, is_stopped=True), ended(b""), Status.CANCELLED),
    ],
)
def test_an_end_is_a_result_an_error_or_a_cancel(held: Holding, frame: Ended, status: Status) -> None:
    then = write_of(held, frame)
    assert isinstance(then, Settle)
    assert (then.status, then.fence) == (status, 3)
    assert (then.end is None) is (status is Status.CANCELLED)


@pytest.mark.rule("M68")
def test_a_failure_says_why_in_its_status_message() -> None:
    then = write_of(holding(), ended(ERROR, FrameKind.ERROR))
    assert isinstance(then, Settle)
    assert then.message == "no paper"


@pytest.mark.rule("K21")
@pytest.mark.parametrize("body", [b"", RESULT, FAILURE])
def test_a_run_that_was_told_to_end_leaves_no_result(body: bytes) -> None:
    assert write_of(holding(is_stopped=True), ended(body)) == GIVEN_BACK


def test_a_run_that_ended_without_a_result_is_given_back() -> None:
    assert write_of(holding(), ended(b"")) == GIVEN_BACK


@pytest.mark.rule("K7")
@pytest.mark.parametrize("frame", [ended(RESULT), ended(b""), ended(b"", FrameKind.ASK)])
def test_nothing_is_written_of_a_task_that_is_lost(frame: Ended) -> None:
    assert write_of(holding(is_lost=True), frame) is None


def test_an_attempt_that_asks_for_another_is_given_back_with_its_end() -> None:
    then = write_of(holding(), ended(FAILURE, line=f"{TRY_AGAIN} 2.500"))
    assert isinstance(then, Release)
    assert then.after == 2.5
    assert then.failed is not None
    assert then.failed.status is Status.COMPLETED


def held(*holdings: Holding) -> Holdings:
    found = Holdings(lambda _: None, structlog.get_logger())
    for each in holdings:
        found.add(each)
    return found


@pytest.mark.parametrize(
    ("tasks", "free", "waits_alone", "claimable"),
    [
        (held(), 32, False, 24),
        (held(), 5, False, 5),
        (held(holding()), 32, False, 23),
        (held(holding(has_returned=True)), 32, False, 24),
        (held(), 32, True, 24),
        (held(holding()), 32, True, 0),
        (held(holding(alone=True)), 32, False, 0),
    ],
)
def test_a_worker_claims_as_many_tasks_as_it_has_slots_for(
    tasks: Holdings, free: int, *, waits_alone: bool, claimable: int
) -> None:
    """A task that crashed its workers runs beside no other."""
    assert tasks.count_claimable(free=free, most=24, waits_alone=waits_alone) == claimable
