"""Questions to the client: sealed into the request's state, and good for that request alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json
from structlog.testing import LogCapture

from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.edge.protocol.continuation import FIRST, Round, TooManyRounds
from mcpfleet.edge.protocol.exchange import Exchange as ServerExchange
from mcpfleet.edge.protocol.sealer import KeySealer
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.keys import make_keys
from mcpfleet.telemetry.spans import Span
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.views.rights import Policy, Rights
from mcpfleet.views.view import view_of
from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.reply import NotSpliceable
from tests.kit.at_once import RoundsAtOnce
from tests.kit.logs import captured
from tests.unit.edge.asgi import admitted

SNAPSHOT = Snapshot(endpoint="mcp", number=1, name="library", version="1")
VIEW = view_of(SNAPSHOT, Policy.of(SNAPSHOT, hides_uncovered=False), Rights(is_named=False))
QUESTION = {"method": "elicitation/create", "params": {"message": "Who?"}}
ANN = Principal(subject="ann", client="agent", tenant="acme")


@pytest.fixture
def rounds(tmp_path: Path) -> RoundsAtOnce:
    sealer = KeySealer(str(make_keys(tmp_path)), adopted_after=0, log=captured(LogCapture()))
    return RoundsAtOnce(sealer, EdgeSettings(max_rounds=3))


def request(
    params: Mapping[str, Any],
    *,
    method: str = "tools/call",
    endpoint: str = "mcp",
    principal: Principal = ANN,
    span: Span | None = None,
) -> ServerExchange:
    envelope = Envelope(1, method, dict(params), {})
    exchange = admitted(envelope, VIEW, principal, endpoint=endpoint)
    exchange.span = span or exchange.span
    return exchange


def frame(**fields: Any) -> bytes:
    return to_json({"inputRequests": {"who": QUESTION}, "memory": {"step": 1}} | fields)


def asked(rounds: RoundsAtOnce, of: ServerExchange, before: Round = FIRST, body: bytes | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(rounds.ask(of, before, frame() if body is None else body))
    return result


CALL = {"name": "report", "arguments": {"a": 1, "b": [2]}}


@pytest.mark.rule("M50")
def test_a_question_is_a_result_without_cache_hints(rounds: RoundsAtOnce) -> None:
    result = asked(rounds, request(CALL))
    assert result.keys() == {"_meta", "resultType", "inputRequests", "requestState"}
    assert result["resultType"] == "input_required"
    assert result["inputRequests"] == {"who": QUESTION}


@pytest.mark.rule("M50")
def test_a_retry_brings_back_what_the_handler_remembers_and_the_answers(rounds: RoundsAtOnce) -> None:
    state = asked(rounds, request(CALL))["requestState"]
    answers = {"who": {"action": "accept", "content": {"name": "Ann"}}}
    begun = rounds.begin(request({**CALL, "requestState": state, "inputResponses": answers}))
    assert begun == Round(1, answers, {"step": 1})


class Linked(Span):
    """Keeps what it is linked to."""

    def __init__(self, context: TraceContext) -> None:
        super().__init__(context)
        self.links: list[TraceContext] = []

    def link(self, cause: TraceContext) -> None:
        self.links.append(cause)


@pytest.mark.rule("M50")
@pytest.mark.parametrize("sampled", [True, False])
def test_a_retry_is_linked_to_the_round_before_where_that_is_recorded(rounds: RoundsAtOnce, *, sampled: bool) -> None:
    first, second = Linked(TraceContext.fresh(sampled=sampled)), Linked(TraceContext.fresh(sampled=True))
    state = asked(rounds, request(CALL, span=first))["requestState"]
    rounds.begin(request({**CALL, "requestState": state}, span=second))
    assert first.links == []
    assert second.links == ([first.context] if sampled else [])


@pytest.mark.rule("M51")
def test_answers_without_a_state_are_taken(rounds: RoundsAtOnce) -> None:
    assert rounds.begin(request({**CALL, "inputResponses": {"who": {}}})) == Round(0, {"who": {}}, None)


@pytest.mark.rule("M52")
def test_the_order_of_arguments_and_what_meta_says_do_not_matter(rounds: RoundsAtOnce) -> None:
    state = asked(rounds, request(CALL))["requestState"]
    again = {"_meta": {"x": 1}, "arguments": {"b": [2], "a": 1}, "name": "report", "requestState": state}
    assert rounds.begin(request(again)).number == 1


@pytest.mark.rule("M52")
@pytest.mark.parametrize(
    "other",
    [
        {"params": {**CALL, "name": "other"}},
        {"params": {**CALL, "arguments": {"a": 1, "b": [3]}}},
        {"method": "prompts/get"},
        {"endpoint": "second"},
        {"principal": Principal(subject="bob", client="agent", tenant="acme")},
        {"principal": Principal(subject="ann", client="agent", tenant="other")},
        {"principal": ANONYMOUS},
    ],
    ids=["target", "arguments", "method", "endpoint", "subject", "tenant", "nobody"],
)
def test_a_state_is_good_for_its_own_request_alone_and_refused_in_the_same_words(
    rounds: RoundsAtOnce, other: dict[str, Any]
) -> None:
    state = asked(rounds, request(CALL))["requestState"]
    of = request({**other.pop("params", CALL), "requestState": state}, **other)
    foreign = refusal(rounds, of)
    tampered = refusal(rounds, request({**CALL, "requestState": state + "-TAMPERED"}))
    assert (foreign.status, foreign.code, foreign.message) == (400, -32602, tampered.message)


@pytest.mark.rule("M52")
def test_a_state_that_is_too_long_is_refused_unread(rounds: RoundsAtOnce) -> None:
    assert refusal(rounds, request({**CALL, "requestState": "A" * 1_000_000})).code == -32602


def refusal(rounds: RoundsAtOnce, of: ServerExchange) -> Rejection:
    with pytest.raises(Rejection) as raised:
        rounds.begin(of)
    return raised.value


@pytest.mark.rule("M53")
def test_a_handler_asks_as_often_as_clients_answer(rounds: RoundsAtOnce) -> None:
    before = FIRST
    for number in range(3):
        state = asked(rounds, request(CALL), before)["requestState"]
        before = rounds.begin(request({**CALL, "requestState": state}))
        assert before.number == number + 1
    with pytest.raises(TooManyRounds):
        rounds.ask(request(CALL), before, frame())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        frame(inputRequests={}),
        frame(inputRequests=None),
        frame(memory=None),
        frame(inputRequests={"x": {"method": "tools/call"}}),
        frame(inputRequests={"x": "who?"}),
    ],
)
def test_a_malformed_question_of_a_worker_reaches_nobody(rounds: RoundsAtOnce, body: bytes) -> None:
    with pytest.raises(NotSpliceable):
        rounds.ask(request(CALL), FIRST, body)


def test_without_keys_a_question_is_503(tmp_path: Path) -> None:
    rounds = RoundsAtOnce(KeySealer("", adopted_after=0, log=captured(LogCapture())), EdgeSettings())
    with pytest.raises(Rejection) as raised:
        rounds.ask(request(CALL), FIRST, frame())
    assert (raised.value.status, raised.value.code) == (503, -32603)


@pytest.mark.rule("M52")
def test_what_is_too_large_for_a_state_says_to_use_a_task(rounds: RoundsAtOnce) -> None:
    with pytest.raises(Rejection) as raised:
        rounds.ask(request(CALL), FIRST, frame(memory={"x": "y" * 200_000}))
    assert raised.value.code == -32603
    assert "task" in raised.value.message
