"""The decisions of the tasks service: what a worker gets, how an attempt ends, what is asked. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic_core import to_json

from mcpfleet.bus.errors import Failed, Fault
from mcpfleet.contracts.pool_tasks import TaskQuestion
from mcpfleet.contracts.tasks import Status

VANISHED_BEFORE_ALONE: Final = 2
"""Holders in a row that vanish before a task runs alone."""
BESIDE: Final = 512
"""Bytes that a task, a step or an answer takes in a message in addition to its text."""

LACKS_WORKER: Final = "no worker took it in time"
LACKS_VERSION: Final = "no worker of its version took it in time"
LACKS_ANSWER: Final = "its questions were not answered in time"
LACKS_TOOL: Final = "the workers of its application no longer have its tool"
TOOK_TOO_LONG: Final = "it took longer than its limit"


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A committed change of a task, for those who must hear of it."""

    task: str
    version: int = 0
    """Its new version; 0 where no reader can see a difference."""
    ready: tuple[str, str] | None = None
    """Its pool and definition, where it may be claimed now."""
    notify: tuple[str, str] | None = None
    """Its holder's pool and process, where the holder must extend at once."""
    ended: tuple[Status, str] | None = None
    """Its status and class of failure, where it has ended."""


@dataclass(frozen=True, slots=True)
class ForcedEnd:
    """The task ends without its holder."""

    status: Status
    failure: str = ""
    """The class of failure, for metrics."""
    why: str = ""
    """The reason, for its owner."""

    @property
    def error(self) -> str | None:
        """The JSON-RPC error with which it fails; None where it does not fail (M68)."""
        if self.status is not Status.FAILED:
            return None
        return to_json({"code": -32603, "message": f"The task has ended: {self.why}."}).decode()


CANCELLED: Final = ForcedEnd(Status.CANCELLED)


def weight(text: str) -> int:
    """The bytes of a text as a JSON string in a message."""
    return len(to_json(text))


def check_size(what: str, size: int, limit: int, setting: str) -> None:
    """Refuse what is larger than a setting allows.

    Raises:
        Failed: `too_large`.
    """
    if size > limit:
        raise Failed(Fault.TOO_LARGE, f"{what} of {size} bytes is over the limit of {limit} ({setting})")


def is_news(progress: float | None, before: float | None) -> bool:
    """Whether a status message may follow earlier ones: the progress that clients see never falls (K27).

    Args:
        progress: the progress in the message; None where it has none.
        before: the highest progress that was reported.
    """
    return progress is None or before is None or progress > before


def overdue(*, is_waiting: bool, was_claimed: bool, is_held: bool) -> ForcedEnd:
    """Say why a task ends at its limit."""
    if is_waiting:
        return ForcedEnd(Status.FAILED, "no_answer", LACKS_ANSWER)
    if not was_claimed:
        return ForcedEnd(Status.FAILED, "no_worker", LACKS_WORKER)
    if not is_held:
        return ForcedEnd(Status.FAILED, "no_worker", LACKS_VERSION)
    return ForcedEnd(Status.FAILED, "run_limit", TOOK_TOO_LONG)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A task that may be claimed."""

    id: str
    size: int
    vanished: int

    @property
    def is_alone(self) -> bool:
        """Whether it must run without other tasks beside it."""
        return self.vanished >= VANISHED_BEFORE_ALONE


@dataclass(frozen=True, slots=True)
class Picked:
    """The tasks that a claimer gets."""

    ids: tuple[str, ...]
    alone_waits: bool


def pick(candidates: Sequence[Candidate], *, most: int, held: int, budget: int) -> Picked:
    """Choose the tasks that a claimer gets, the longest waiting first.

    A claimer that holds nothing gets a task that must run alone, and only that. Other claimers hear that one waits.
    They get as many others as they want, and as one message takes.
    """
    if held == 0 and candidates and candidates[0].is_alone:
        return Picked((candidates[0].id,), alone_waits=False)
    ids: list[str] = []
    for each in candidates:
        if each.is_alone:
            continue
        budget -= each.size + BESIDE
        if len(ids) == most or (budget < 0 and ids):
            break
        ids.append(each.id)
    return Picked(tuple(ids), alone_waits=any(each.is_alone for each in candidates))


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A stored question of a task."""

    key: str
    digest: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class AskDecision:
    """The decision about a handler's questions."""

    new: tuple[TaskQuestion, ...] = ()
    answered: tuple[AskedQuestion, ...] = ()
    is_waiting: bool = False
    clash: str | None = None


def ask(questions: Iterable[TaskQuestion], known: dict[str, AskedQuestion]) -> AskDecision:
    """Compare questions with the stored ones: a key never names another question (M70)."""
    new: dict[str, TaskQuestion] = {}
    answered: list[AskedQuestion] = []
    waits = False
    for question in questions:
        before = known.get(question.key)
        other = before.digest if before else new[question.key].digest if question.key in new else question.digest
        if other != question.digest:
            return AskDecision(clash=question.key)
        if before is None:
            new[question.key] = question
        elif before.answer is None:
            waits = True
        else:
            answered.append(before)
    return AskDecision(tuple(new.values()), tuple(answered), is_waiting=waits or bool(new))
