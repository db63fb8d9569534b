"""The bytes that go back, composed by splicing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfleet.wire import reply
from mcpfleet.wire.errors import bad_params
from mcpfleet.wire.reply import RESULT_HEAD, NotSpliceable

SERVER = reply.server_info({"name": "library", "version": "1.0.0"})
SERVER_KEY = "io.modelcontextprotocol/serverInfo"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
IDS = st.text() | st.integers()
FIELDS = st.dictionaries(st.text(min_size=1).filter(lambda key: key != "_meta"), JSON)
META = st.dictionaries(st.text().filter(lambda key: key != "io.modelcontextprotocol/serverInfo"), JSON)


def read_events(stream: bytes) -> list[str]:
    """Read a stream of events as the standard says: lines end by CR, LF or both; an empty line ends an event."""
    events, data = [], list[str]()
    text = stream.decode().replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        field, _, value = line.partition(":")
        assert field in ("", "event", "data"), "M12: neither id nor retry"
        if field == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:
            events.append("\n".join(data))
            data = []
    return events


@pytest.mark.rule("M19")
@settings(deadline=None, max_examples=25)
@given(
    IDS, st.dictionaries(st.text(min_size=1).filter(lambda key: key != "_meta"), JSON), st.dictionaries(st.text(), JSON)
)
def test_a_result_keeps_its_members_and_gains_the_servers_name(
    identifier: str | int, fields: dict[str, Any], meta: dict[str, Any]
) -> None:
    body = json.loads(reply.response(identifier, reply.result_body(fields, meta), SERVER))
    assert body == {
        "jsonrpc": "2.0",
        "id": identifier,
        "result": {**fields, "_meta": {**meta, SERVER_KEY: {"name": "library", "version": "1.0.0"}}},
    }


@pytest.mark.rule("T6")
@pytest.mark.parametrize("identifier", [1, "1", 0, "", 2**70, 'a"\\\n\u2028'])
def test_an_id_keeps_its_type_in_results_errors_and_tokens(identifier: Any) -> None:
    result = json.loads(reply.response(identifier, reply.result_body({}), SERVER))["id"]
    failure = json.loads(reply.error(identifier, bad_params("x")))["id"]
    authored = json.loads(reply.error_body(identifier, b'{"code":1,"message":"x"}'))["id"]
    token = json.loads(reply.progress(identifier, b'{"progress":1}'))["params"]["progressToken"]
    for echo in (result, failure, authored, token):
        assert (type(echo), echo) == (type(identifier), identifier)


@pytest.mark.rule("M19")
def test_the_servers_title_is_told_where_it_has_one() -> None:
    named = json.loads(b"{" + reply.server_info({"name": "library", "version": "1", "title": "The Library"}) + b"}")
    assert named == {SERVER_KEY: {"name": "library", "version": "1", "title": "The Library"}}


@pytest.mark.rule("M38")
def test_null_is_a_value_of_a_result() -> None:
    assert json.loads(reply.result_body({"structuredContent": None}))["structuredContent"] is None


@pytest.mark.rule("D18")
@pytest.mark.parametrize(
    "result",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{}", id="no _meta"),
        pytest.param(b'{"content":[],"_meta":{}}', id="_meta not first"),
        pytest.param(b' {"_meta":{}}', id="a space before"),
        pytest.param(b'{"_meta":null}', id="_meta null"),
        pytest.param(b'{"_meta":{},"a":\n1}', id="a line feed"),
        pytest.param(b'{"_meta":{},"a":\r1}', id="a carriage return"),
        pytest.param(RESULT_HEAD + b'}}\n\nevent: message\ndata: {"forged":1}', id="a forged event"),
    ],
)
def test_a_result_of_another_head_or_of_two_lines_is_refused(result: bytes) -> None:
    """A raw line end could forge an event of the stream."""
    with pytest.raises(NotSpliceable):
        reply.response(1, result, SERVER)


@pytest.mark.rule("D18")
@pytest.mark.parametrize("body", [b"", b"null", b'"x"', b"[]", b'{"code":\n1}', b'{"code":\r1}'])
def test_an_error_that_is_no_object_of_one_line_is_refused(body: bytes) -> None:
    with pytest.raises(NotSpliceable):
        reply.error_body(1, body)


@pytest.mark.rule("D18")
@pytest.mark.parametrize("body", [b"", b"{}", b'{"total":1}', b'{"progress":\n1}', b'{"progress":1}\r'])
def test_a_progress_report_that_is_no_object_of_one_line_is_refused(body: bytes) -> None:
    with pytest.raises(NotSpliceable):
        reply.progress(1, body)


def test_an_authored_error_is_spliced_in_as_it_came() -> None:
    body = b'{"code":-1,"message":"Not now.","data":{"a":[1]}}'
    assert json.loads(reply.error_body(7, body)) == {"jsonrpc": "2.0", "id": 7, "error": json.loads(body)}


@pytest.mark.rule("P6")
def test_progress_is_a_notification_without_an_id() -> None:
    assert json.loads(reply.progress("t", b'{"progress":1,"total":3,"message":"loaded"}')) == {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "t", "progress": 1, "total": 3, "message": "loaded"},
    }


@pytest.mark.rule("D18")
@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\u0085", "a\u2028b\u0085c", "\r\n", "\x0b\x0c\x1c"])
def test_characters_that_some_take_for_line_ends_survive_an_event(text: str) -> None:
    result = reply.result_body({"content": [{"type": "text", "text": text}]})
    [event] = read_events(reply.event(reply.response(1, result, SERVER)))
    assert json.loads(event)["result"]["content"][0]["text"] == text


@pytest.mark.rule("M12")
@settings(deadline=None, max_examples=25)
@given(st.lists(st.dictionaries(st.text(), JSON), min_size=1, max_size=4))
def test_events_are_read_as_they_were_sent_with_comments_between_them(results: list[dict[str, Any]]) -> None:
    """Neither `id:` nor `retry:`: both clients would turn to GET with Last-Event-ID."""
    bodies = [reply.response(number, reply.result_body({"x": value}), SERVER) for number, value in enumerate(results)]
    stream = reply.KEEPALIVE + b"".join(reply.event(body) + reply.KEEPALIVE for body in bodies)
    assert [json.loads(event) for event in read_events(stream)] == [json.loads(body) for body in bodies]
