"""Readers of a task, the questions that a caller can answer, the answers that fit, and the results for clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import ANONYMOUS, Principal
from mcpfleet.contracts.tasks import Status, TaskView, is_task_id
from mcpfleet.edge.tasks import results
from mcpfleet.edge.tasks.idempotency import key_of, marked
from mcpfleet.edge.tasks.inputs import check_answerable, check_answers
from mcpfleet.edge.tasks.read import policy_allows, policy_of
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.reply import NotSpliceable

FORM = json.dumps(
    {
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "?",
            "requestedSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        },
    }
)
PAGE = json.dumps(
    {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://x.example"}}
)
MODEL = json.dumps({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5}})
TOOLS = json.dumps({"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 5, "tools": []}})
ROOTS = json.dumps({"method": "roots/list", "params": {}})


def view(status: Status = Status.WORKING, **said: Any) -> TaskView:
    return TaskView(
        id="t" * 32, status=status, version=2, created_at=0.0, updated_at=1.5, poll_ms=1000, endpoint="mcp",
        pool="works", definition="d" * 32, name="report", **said,
    )  # fmt: skip


@pytest.mark.rule("K11")
@pytest.mark.parametrize(
    ("request_text", "capabilities", "missing"),
    [
        (FORM, {"elicitation": {}}, None),
        (FORM, {}, {"elicitation": {"form": {}}}),
        (PAGE, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        (PAGE, {"elicitation": {"url": {}}}, None),
        (MODEL, {"elicitation": {}}, {"sampling": {}}),
        (TOOLS, {"sampling": {}}, {"sampling": {"tools": {}}}),
        (ROOTS, {}, {"roots": {}}),
    ],
)
def test_a_poll_lists_what_is_missing(request_text: str, capabilities: dict[str, Any], missing: Any) -> None:
    if missing is None:
        check_answerable({"q": request_text}, capabilities)
        return
    with pytest.raises(Rejection) as refused:
        check_answerable({"q": request_text}, capabilities)
    assert refused.value.code == -32021
    assert refused.value.data == {"requiredCapabilities": missing}


@pytest.mark.rule("K9")
@pytest.mark.parametrize(
    ("request_text", "answer", "fits"),
    [
        (FORM, {"action": "accept", "content": {"n": 5}}, True),
        (FORM, {"action": "accept", "content": {"n": 5, "other": None}}, True),
        (FORM, {"action": "accept", "content": {"n": "5"}}, False),
        (FORM, {"action": "accept"}, False),
        (FORM, {"action": "decline"}, True),
        (FORM, {"action": "perhaps"}, False),
        (FORM, 12345, False),
        (FORM, None, False),
        (PAGE, {"action": "accept"}, True),
        (ROOTS, {"roots": [{"uri": "file:///a"}]}, True),
        (ROOTS, {"roots": "all"}, False),
        (MODEL, {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}, True),
        (MODEL, {"role": "assistant"}, False),
    ],
)
def test_an_answer_fits_its_question_or_nothing_is_taken(request_text: str, answer: Any, *, fits: bool) -> None:
    if fits:
        check_answers({"q": request_text}, {"q": answer, "unknown": 5})
        return
    with pytest.raises(Rejection) as refused:
        check_answers({"q": request_text}, {"q": answer})
    assert refused.value.code == -32602


@pytest.mark.rule("K12")
def test_what_a_tool_asks_of_its_callers_is_kept_with_the_task() -> None:
    tool = Definition(kind="tool", name="report", wire={}, scopes=("read",), only_for=("tenant:acme*",))
    kept = policy_of(tool)
    assert policy_allows(kept, Principal(subject="ann", tenant="acme-1", scopes=("read", "write")))
    assert not policy_allows(kept, Principal(subject="ann", tenant="acme-1"))
    assert not policy_allows(kept, Principal(subject="ann", tenant="other", scopes=("read",)))
    scoped = policy_of(Definition(kind="tool", name="report", wire={}, scopes=("read",)))
    assert policy_allows(scoped, ANONYMOUS)
    assert not policy_allows(scoped, Principal(client="cli")), "a client has scopes too"
    assert policy_allows(scoped, Principal(client="cli", scopes=("read",)))
    assert not policy_allows("of a later release", Principal(subject="ann"))
    assert policy_of(Definition(kind="tool", name="report", wire={})) is None
    assert policy_allows(None, ANONYMOUS)


@pytest.mark.rule("M66")
def test_a_handle_is_a_bare_task() -> None:
    made = json.loads(results.created(view(message="begins")))
    assert made == {
        "_meta": {},
        "resultType": "task",
        "taskId": "t" * 32,
        "status": "working",
        "statusMessage": "begins",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "lastUpdatedAt": "1970-01-01T00:00:01.500Z",
        "ttlMs": None,
        "pollIntervalMs": 1000,
    }


@pytest.mark.rule("K7")
def test_each_state_has_what_is_its_own() -> None:
    completed = json.loads(results.got(view(Status.COMPLETED, end='{"isError":false}', ttl_ms=5)))
    failed = json.loads(results.got(view(Status.FAILED, end='{"code":-1,"message":"x"}')))
    asks = json.loads(results.got(view(Status.INPUT_REQUIRED, requests={"q": ROOTS})))
    assert (completed["result"], completed["ttlMs"], "error" in completed) == ({"isError": False}, 5, False)
    assert (failed["error"], "result" in failed) == ({"code": -1, "message": "x"}, False)
    assert asks["inputRequests"] == {"q": json.loads(ROOTS)}
    assert {completed["resultType"], failed["resultType"], asks["resultType"]} == {"complete"}


@pytest.mark.parametrize("end", ["", "[]", '{"a":\n1}'])
def test_an_end_that_is_no_line_of_an_object_is_not_spliced_in(end: str) -> None:
    with pytest.raises(NotSpliceable):
        results.got(view(Status.COMPLETED, end=end))


@pytest.mark.rule("M72")
@pytest.mark.parametrize(
    ("task", "is_ours"), [("a" * 32, True), ("a-_" * 8, True), ("short", False), ("a" * 65, False), ("ä" * 32, False)]
)
def test_an_id_is_safe_in_a_header(task: str, *, is_ours: bool) -> None:
    assert is_task_id(task) is is_ours


@pytest.mark.rule("D9")
@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"r": "a"}, "a"),
        ({"r": 5}, "5"),
        ({"r": 5.0}, "5"),
        ({"r": -0.0}, "0"),
        ({"r": 5.5}, None),
        ({"r": ""}, None),
        ({}, None),
        ({"r": True}, None),
    ],
)
def test_a_key_is_a_text_or_an_integer(arguments: dict[str, Any], key: str | None) -> None:
    assert key_of(Definition(kind="tool", name="pay", wire={}, idempotency_key="r"), arguments, {}) == key


@pytest.mark.rule("I2")
def test_a_repeat_is_marked_beside_what_the_result_says() -> None:
    assert json.loads(marked(b'{"_meta":{},"a":1}')) == {"_meta": {"io.mcpfleet/repeat": True}, "a": 1}
    assert json.loads(marked(b'{"_meta":{"x":1},"a":1}')) == {"_meta": {"io.mcpfleet/repeat": True, "x": 1}, "a": 1}
