"""The tasks service's decisions, as tables: what becomes of attempts, who gets what, what a question is."""

from __future__ import annotations

import json

import pytest

from mcpfleet.contracts.pool_tasks import TaskQuestion
from mcpfleet.contracts.tasks import KeyOutcome, Status
from mcpfleet.tasks.attempts import Attempts, Retry, backoff
from mcpfleet.tasks.idempotency import KeyRecord, KeyState, judge
from mcpfleet.tasks.rules import CANCELLED, AskDecision, AskedQuestion, Candidate, ForcedEnd, ask, overdue, pick, weight

FIRST, MOST = 1.0, 60.0
D1, D2 = "1" * 32, "2" * 32


def tried(attempts: int = 0, vanished: int = 0, most: int = 10, *, cancelled: bool = False) -> Attempts:
    return Attempts(attempts, most, vanished, is_cancelled=cancelled)


@pytest.mark.rule("D8")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tried(), Retry(0.0, 1, 1)),
        (tried(1, 1), Retry(1.0, 2, 2)),
        (tried(4, 0), Retry(8.0, 5, 1)),
        (tried(cancelled=True), CANCELLED),
    ],
)
def test_a_holder_that_vanishes_counts(before: Attempts, after: object) -> None:
    assert before.vanish(FIRST, MOST) == after


@pytest.mark.parametrize(
    ("before", "failure"), [(tried(2, 2), "crashed_worker"), (tried(9, 2), "crashed_worker"), (tried(9, 0), "attempts")]
)
def test_a_task_that_vanishes_too_often_fails_and_says_why(before: Attempts, failure: str) -> None:
    after = before.vanish(FIRST, MOST)
    assert isinstance(after, ForcedEnd)
    assert (after.status, after.failure) == (Status.FAILED, failure)
    error = json.loads(after.error or "")
    assert (error["code"], after.why in error["message"]) == (-32603, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (tried(), Retry(5.0, 1, 0)),
        (tried(5, 1), Retry(16.0, 6, 0)),
        (tried(9), None),
        (tried(most=1), None),
        (tried(cancelled=True), None),
    ],
)
def test_a_failed_attempt_counts_and_the_last_one_is_the_end(before: Attempts, after: Retry | None) -> None:
    assert before.fail(5.0, FIRST, MOST) == after


def test_what_is_given_back_counts_nothing() -> None:
    assert tried(3, 1).give_back() == Retry(0.0, 3, 1)
    assert tried(cancelled=True).give_back() == CANCELLED


@pytest.mark.parametrize(("attempts", "pause"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 4), (7, 32), (8, 60), (100, 60)])
def test_the_pause_between_attempts_doubles_up_to_a_bound(attempts: int, pause: float) -> None:
    assert backoff(attempts, FIRST, MOST) == pause


@pytest.mark.parametrize(
    ("is_waiting", "was_claimed", "is_held", "failure"),
    [
        (True, True, False, "no_answer"),
        (True, True, True, "no_answer"),
        (False, False, False, "no_worker"),
        (False, True, False, "no_worker"),
        (False, True, True, "run_limit"),
    ],
)
def test_why_a_task_ends_at_its_limit(*, is_waiting: bool, was_claimed: bool, is_held: bool, failure: str) -> None:
    assert overdue(is_waiting=is_waiting, was_claimed=was_claimed, is_held=is_held).failure == failure


A, B, C = Candidate("a", 100, 0), Candidate("b", 100, 1), Candidate("c", 100, 0)
ALONE = Candidate("alone", 100, 2)


@pytest.mark.parametrize(
    ("candidates", "held", "most", "ids", "waits"),
    [
        ([], 0, 3, (), False),
        ([A, B, C], 0, 3, ("a", "b", "c"), False),
        ([A, B, C], 5, 2, ("a", "b"), False),
        ([ALONE, A], 0, 3, ("alone",), False),
        ([ALONE, A], 1, 3, ("a",), True),
        ([A, ALONE, B], 0, 3, ("a", "b"), True),
        ([ALONE], 1, 3, (), True),
    ],
)
def test_who_gets_which_tasks(
    candidates: list[Candidate], held: int, most: int, ids: tuple[str, ...], waits: bool
) -> None:
    picked = pick(candidates, most=most, held=held, budget=10_000)
    assert (picked.ids, picked.alone_waits) == (ids, waits)


@pytest.mark.parametrize(("budget", "ids"), [(0, ("a",)), (700, ("a",)), (1300, ("a", "b")), (9000, ("a", "b", "c"))])
def test_one_claim_fits_one_message_and_one_task_always_does(budget: int, ids: tuple[str, ...]) -> None:
    assert pick([A, B, C], most=9, held=0, budget=budget).ids == ids


def question(key: str, digest: str = D1) -> TaskQuestion:
    return TaskQuestion(key=key, digest=digest, request="{}")


@pytest.mark.rule("M70")
@pytest.mark.parametrize(
    ("questions", "known", "asking"),
    [
        ([question("a")], {}, AskDecision(new=(question("a"),), is_waiting=True)),
        ([question("a")], {"a": AskedQuestion("a", D1, None)}, AskDecision(is_waiting=True)),
        ([question("a")], {"a": AskedQuestion("a", D1, "1")}, AskDecision(answered=(AskedQuestion("a", D1, "1"),))),
        ([question("a", D2)], {"a": AskedQuestion("a", D1, "1")}, AskDecision(clash="a")),
        ([question("a"), question("a", D2)], {}, AskDecision(clash="a")),
        ([question("a"), question("a")], {}, AskDecision(new=(question("a"),), is_waiting=True)),
        (
            [question("a"), question("b")],
            {"a": AskedQuestion("a", D1, "1"), "z": AskedQuestion("z", D1, None)},
            AskDecision(new=(question("b"),), answered=(AskedQuestion("a", D1, "1"),), is_waiting=True),
        ),
    ],
)
def test_what_becomes_of_questions(
    questions: list[TaskQuestion], known: dict[str, AskedQuestion], asking: AskDecision
) -> None:
    assert ask(questions, known) == asking


def test_a_text_weighs_what_it_takes_in_a_message() -> None:
    assert weight('"\n') == len('"\\"\\n"')


def record(state: KeyState = KeyState.RUNNING, *, is_late: bool = False) -> KeyRecord:
    return KeyRecord(arguments=D1, state=state, fence=1, holder="me", is_late=is_late)


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("known", "arguments", "holder", "safe", "outcome"),
    [
        (record(), D2, "me", False, KeyOutcome.MISMATCH),
        (record(KeyState.DONE), D2, "me", True, KeyOutcome.MISMATCH),
        (record(), D1, "me", False, KeyOutcome.NEW),
        (record(), D1, "you", False, KeyOutcome.RUNNING),
        (record(), D1, "you", True, KeyOutcome.RUNNING),
        (record(is_late=True), D1, "you", False, KeyOutcome.UNCERTAIN),
        (record(is_late=True), D1, "me", False, KeyOutcome.UNCERTAIN),
        (record(is_late=True), D1, "you", True, KeyOutcome.NEW),
        (record(KeyState.UNCERTAIN), D1, "me", False, KeyOutcome.UNCERTAIN),
        (record(KeyState.UNCERTAIN), D1, "you", True, KeyOutcome.NEW),
        (record(KeyState.DONE), D1, "you", True, KeyOutcome.REPEAT),
        (record(KeyState.DONE, is_late=True), D1, "you", False, KeyOutcome.REPEAT),
    ],
)
def test_what_a_repeat_is_told(known: KeyRecord, arguments: str, holder: str, safe: bool, outcome: KeyOutcome) -> None:
    assert judge(known, arguments=arguments, holder=holder, again_is_safe=safe) is outcome
