"""The subjects of remote procedures, and the ends of requests as an answer's line tells them."""

from __future__ import annotations

import time

import pytest
from pydantic import BaseModel, ValidationError

from mcpfleet.bus.errors import (
    BusError,
    Busy,
    Expired,
    Failed,
    Fault,
    NoResponders,
    NotRun,
    Refused,
    TooLarge,
    Unanswered,
)
from mcpfleet.bus.header import BUSY, ending, fault
from mcpfleet.bus.port import Incoming
from mcpfleet.bus.rpc import Rpc, broken_rules


class Question(BaseModel):
    """A question with something secret in it."""

    token: int


EXCHANGE = Rpc("edge.{edge}.alive.{pool}", Question, Question, asked_by="pool-{pool}", repeat=False)


def test_a_subject_is_made_of_its_tokens_and_gives_them_back() -> None:
    subject = EXCHANGE.subject_for(edge="e1", pool="library")
    assert subject == "edge.e1.alive.library"
    assert EXCHANGE.tokens(subject) == {"edge": "e1", "pool": "library"}


def test_a_pattern_hears_every_value_of_each_token() -> None:
    assert EXCHANGE.pattern() == "edge.*.alive.*"
    assert Rpc("catalog.snapshot", Question, Question, asked_by="edge", repeat=True).pattern() == "catalog.snapshot"


def test_answers_go_to_the_inboxes_of_the_user_that_may_ask() -> None:
    assert EXCHANGE.replies("edge.e1.alive.library") == "inbox.pool-library."


def test_a_broken_contract_names_the_field_and_the_rule_and_never_the_value() -> None:
    with pytest.raises(ValidationError) as raised:
        Question.model_validate_json('{"token": "secret"}')
    assert broken_rules(raised.value) == "token: int_parsing"
    with pytest.raises(ValidationError) as raised:
        Question.model_validate_json('"secret"')
    assert broken_rules(raised.value) == "message: model_type"


def answer(line: str | None, body: bytes = b"", *, no_responders: bool = False) -> Incoming:
    return Incoming("inbox.edge.e1.1", "", body, line, no_responders)


@pytest.mark.parametrize("line", [None, "", "1", "1 later words"])
def test_an_answer_without_a_known_word_is_a_plain_one(line: str | None) -> None:
    """A newer process may say more on the line of a success."""
    assert ending("catalog.snapshot", answer(line, b"{}")) is None


def test_busy_and_no_responders_have_not_run() -> None:
    assert isinstance(ending("s", answer(BUSY)), Busy)
    assert isinstance(ending("s", answer(None, no_responders=True)), NoResponders)


@pytest.mark.parametrize("clock", ["", "soon", "-1", "9" * 5000], ids=["none", "words", "negative", "endless"])
def test_invariant_13_a_clock_that_is_none_costs_the_asker_nothing(clock: str) -> None:
    """A stranger may answer anything, and Python refuses to read a number of more than 4,300 digits."""
    ended = ending("s", answer(f"1 expired {clock}"))
    assert isinstance(ended, Expired)


def test_expired_tells_by_how_much_the_receivers_clock_is_ahead() -> None:
    """So that a wrong clock is found."""
    expired = ending("s", answer(f"1 expired {(time.time() + 30) * 1000:.0f}"))
    assert isinstance(expired, Expired)
    assert expired.skew == pytest.approx(30, abs=1)
    assert "+30" in str(expired) or "+29" in str(expired)


def test_a_fault_has_its_kind_and_its_sentence() -> None:
    failed = ending("s", answer(fault(Fault.REFUSED), b"the pool is not admitted"))
    assert isinstance(failed, Failed)
    assert (failed.kind, str(failed)) == (Fault.REFUSED, "the pool is not admitted")


def test_a_fault_of_a_kind_that_only_newer_processes_know_is_kept() -> None:
    failed = ending("s", answer("1 fault exhausted"))
    assert isinstance(failed, Failed)
    assert failed.kind == "exhausted"


def test_errors_are_split_by_whether_the_request_may_have_run() -> None:
    """Asking again is safe after the first kind only (invariant 6)."""
    not_run = [Busy("s"), NoResponders("s"), Expired("s", 0.0), Refused("s", "publish to"), TooLarge("x", 2, 1, "S")]
    assert all(isinstance(error, NotRun) for error in not_run)
    assert all(not isinstance(error, NotRun) for error in (Unanswered("s"), Failed("internal", "s")))
    assert all(isinstance(error, BusError) for error in (*not_run, Unanswered("s"), Failed("internal", "s")))


def test_an_operator_reads_what_to_change() -> None:
    assert "MCPFLEET_NATS_USER" in str(Refused("pool.other.d1.call", "publish to"))
    assert "'pool.other.d1.call'" in str(Refused("pool.other.d1.call", "publish to"))
    assert str(TooLarge("a message to s", 11, 10, "MCPFLEET_BUS_MAX_PAYLOAD")).endswith("(MCPFLEET_BUS_MAX_PAYLOAD)")
