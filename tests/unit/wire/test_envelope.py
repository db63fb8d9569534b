"""One JSON-RPC message, read from a body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mcpfleet.wire.envelope import Envelope, is_notification, read_envelope, read_id, read_response
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.reply import error
from mcpfleet.wire.strict import parse


def read(message: Any) -> Envelope:
    body = json.dumps(message).encode()
    return read_envelope(body, parse(body))


def code_of(message: Any) -> int | None:
    with pytest.raises(Rejection) as raised:
        read(message)
    assert raised.value.status == 400
    return raised.value.code


def request(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/list", **members}


def test_a_request_has_an_id_a_method_parameters_and_meta() -> None:
    params = {"name": "search", "_meta": {"a": 1}}
    assert read(request(params=params)) == Envelope(1, "tools/list", params, {"a": 1})


def test_parameters_and_meta_may_be_absent() -> None:
    assert read(request()) == Envelope(1, "tools/list", {}, {})


@pytest.mark.rule("T6")
@pytest.mark.parametrize("identifier", [1, "1", 0, "", -7, 2**70, 1.5, "\u2028"])
def test_an_id_keeps_its_type(identifier: Any) -> None:
    """1 and "1" are two ids."""
    envelope = read(request(id=identifier))
    assert repr(envelope.id) == repr(identifier)


def test_a_message_without_id_is_a_notification() -> None:
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled"}
    assert read(message).id is None
    assert is_notification(message)
    assert not is_notification(request())


@pytest.mark.rule("M8")
@pytest.mark.parametrize(
    "message",
    [
        pytest.param([request()], id="a batch"),
        pytest.param([], id="an empty batch"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "result": {}}, id="a posted response"),
        pytest.param({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}, id="a posted error"),
        pytest.param("tools/list", id="a text"),
        pytest.param(None, id="null"),
        pytest.param({"id": 1, "method": "tools/list"}, id="no version"),
        pytest.param(request(jsonrpc="1.0"), id="another version"),
        pytest.param(request(jsonrpc=2.0), id="a number as version"),
        pytest.param(request(method=7), id="a method that is no string"),
        pytest.param(request(method=None), id="a method that is null"),
    ],
)
def test_what_is_no_single_request_or_notification_is_a_bad_envelope(message: Any) -> None:
    assert code_of(message) == -32600


@pytest.mark.parametrize("identifier", [None, True, False, [], {}, [1]])
def test_an_id_is_a_string_or_a_number(identifier: Any) -> None:
    """A request with an id of another type is no notification either: it would wait for ever."""
    message = request(id=identifier)
    assert code_of(message) == -32600
    assert read_id(message) is None
    assert not is_notification(message)


@pytest.mark.parametrize("params", [[], [1], "a", 5, True])
def test_parameters_are_an_object(params: Any) -> None:
    assert code_of(request(params=params)) == -32602


@pytest.mark.parametrize("meta", [[], "a", 5, True])
def test_meta_is_an_object(meta: Any) -> None:
    assert code_of(request(params={"_meta": meta})) == -32602


@pytest.mark.rule("M2")
@pytest.mark.parametrize("message", [{"id": 7}, {"id": 7, "jsonrpc": "1.0"}, {"id": 7, "method": 5}, {"id": 7.0}])
def test_the_id_is_readable_where_the_rest_is_malformed(message: Any) -> None:
    assert read_id(message) == 7


@pytest.mark.rule("M2")
@pytest.mark.parametrize("message", [[], "text", None, 7, {}, {"id": {}}])
def test_what_has_no_readable_id_has_none(message: Any) -> None:
    assert read_id(message) is None


@pytest.mark.rule("D18")
def test_a_lone_surrogate_anywhere_is_invalid_params() -> None:
    assert code_of(request(params={"name": "\ud800"})) == -32602


@pytest.mark.rule("D18")
def test_an_id_with_a_lone_surrogate_can_be_refused() -> None:
    """The refusal itself cannot repeat such an id, so it counts as unreadable."""
    body = rb'{"jsonrpc":"2.0","id":"\ud800","method":"tools/list"}'
    message = parse(body)
    with pytest.raises(Rejection) as raised:
        read_envelope(body, message)
    assert "id" not in json.loads(error(read_id(message), raised.value))


def responded(message: Any) -> Any:
    body = json.dumps(message).encode()
    return read_response(body, parse(body))


@pytest.mark.rule("M75")
def test_a_response_to_a_request_of_ours_is_read() -> None:
    found = responded({"jsonrpc": "2.0", "id": "a", "result": {"roots": []}})
    assert (found.id, found.result, found.error) == ("a", {"roots": []}, None)
    found = responded({"jsonrpc": "2.0", "id": "a", "error": {"code": -1, "message": "no"}})
    assert (found.result, found.error) == (None, {"code": -1, "message": "no"})


@pytest.mark.rule("M75")
@pytest.mark.parametrize(
    "members", [{}, {"result": 1}, {"result": None}, {"error": "no"}, {"result": {}, "error": "no"}, {"error": None}]
)
def test_a_malformed_response_is_an_answer_without_a_result(members: Any) -> None:
    assert responded({"jsonrpc": "2.0", "id": "a", **members}) == ("a", None, None)


@pytest.mark.rule("T36")
@pytest.mark.parametrize("identifier", [5, None, 1.5, [], {}])
def test_a_response_to_no_request_of_ours_is_one_that_nobody_waits_for(identifier: Any) -> None:
    """Our ids are texts; an error with a null id is what a client says that could not read our request."""
    found = responded({"jsonrpc": "2.0", "id": identifier, "error": {"code": -32700, "message": "no"}})
    assert (found.id, found.error["code"]) == ("", -32700)
    assert responded({"jsonrpc": "2.0", "result": {}}).id == ""


@pytest.mark.rule("L22")
def test_null_is_as_good_as_no_error_and_no_result_of_a_response() -> None:
    """The libraries that write null for absent parameters write all members of a response."""
    assert responded({"jsonrpc": "2.0", "id": "a", "result": {"roots": []}, "error": None}) == (
        "a",
        {"roots": []},
        None,
    )
    assert responded({"jsonrpc": "2.0", "id": "a", "result": None, "error": {"code": -1}}) == ("a", None, {"code": -1})


@pytest.mark.rule("L22")
def test_null_is_as_good_as_no_parameters_and_no_meta() -> None:
    assert read(request(params=None)).params == {}
    assert read(request(params={"_meta": None, "cursor": "a"})).meta == {}


@pytest.mark.rule("M75")
@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": "a", "method": "ping", "result": {}},
        {"jsonrpc": "2.0", "id": 1},
        {"id": "a", "result": {}},
        [{"jsonrpc": "2.0", "id": "a", "result": {}}],
        "text",
    ],
)
def test_what_is_no_response_to_one_is_something_else(message: Any) -> None:
    assert responded(message) is None
