"""By chance: the edge's parts read any input or raise `Rejection`, and what passes can be written again."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import to_json
from structlog.testing import LogCapture

from mcpfleet.edge.transport.allowed_hosts import AllowedHosts
from mcpfleet.edge.transport.cors import Cors
from mcpfleet.telemetry.trace import TraceContext
from mcpfleet.wire import mirror, reply
from mcpfleet.wire.envelope import read_envelope, read_id
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers
from mcpfleet.wire.mirror import Mirrored
from mcpfleet.wire.strict import parse
from tests.kit.logs import captured
from tests.unit.edge.asgi import CAPABILITIES_KEY, MODERN, VERSION_KEY, Exchange, Post
from tests.unit.edge.server.checks import MODERN_ALONE, ROWS, router

METHODS = {row.name: row for row in ROWS}
BOTH = router()
WORDS = (
    *(
        "jsonrpc",
        "2.0",
        "id",
        "method",
        "params",
        "_meta",
        "name",
        "uri",
        "ref",
        "type",
        "argument",
        "value",
        "context",
    ),
    *(
        "arguments",
        "cursor",
        "requestState",
        "inputResponses",
        "notifications",
        "taskIds",
        "extensions",
        "",
        "ref/prompt",
    ),
    *("ref/resource", VERSION_KEY, CAPABILITIES_KEY, MODERN, "2025-11-25", "initialize", *METHODS),
)
TEXTS = st.sampled_from(WORDS) | st.text(max_size=5)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=5))
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=6)
NAMES = st.sampled_from([b"mcp-method", b"mcp-name", b"mcp-protocol-version", b"mcp-param-a", b"host", b"origin"])
PAIRS = st.lists(st.tuples(NAMES, st.binary(max_size=24)), max_size=6)
by_chance = settings(deadline=None, max_examples=100)


@pytest.mark.rule("D18")
@by_chance
@given(st.binary(max_size=64) | st.text(alphabet='{}[]":,0123456789.eE-+ntf\\u', max_size=40).map(str.encode))
def test_a_body_is_read_or_refused_and_what_was_read_can_be_said_again(body: bytes) -> None:
    with suppress(Rejection):
        value = parse(body)
        assert parse(json.dumps(value).encode()) == value


@pytest.mark.rule("M2")
@by_chance
@given(VALUES | OBJECTS)
def test_an_envelope_is_read_or_refused_and_its_id_comes_back_in_its_type(value: Any) -> None:
    body = json.dumps(value).encode()
    message = parse(body)
    try:
        identifier = read_envelope(body, message).id
        refusal = Rejection(400, -32600, "no")
    except Rejection as rejection:
        identifier, refusal = read_id(message), rejection
    said = json.loads(reply.error(identifier, refusal))
    assert said.get("id") == identifier
    assert type(said.get("id")) is type(identifier)


@pytest.mark.rule("T11")
@by_chance
@given(st.sampled_from(sorted(METHODS)), OBJECTS)
def test_the_structure_of_parameters_is_sound_or_refused(method: str, params: dict[str, Any]) -> None:
    with suppress(Rejection):
        METHODS[method].check(params)


@pytest.mark.rule("T11")
@by_chance
@given(st.sampled_from(sorted(METHODS)), OBJECTS, OBJECTS, PAIRS, st.booleans())
def test_a_message_passes_the_ladder_or_is_refused(
    method: str, params: dict[str, Any], meta: dict[str, Any], pairs: list[Any], legacy: bool
) -> None:
    own = {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}, **meta}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": own}}
    post = Post(message)
    with suppress(Rejection, UnicodeEncodeError):  # a test's own headers cannot say every text
        for headers in (pairs, post.pairs()):
            asked = Exchange(post)
            asked.scope["headers"] = headers
            exchange = asked.client()
            exchange.endpoint = "mcp"
            (BOTH if legacy else MODERN_ALONE).identify(exchange, post.body, message)
            assert to_json(exchange.params), "what passes can be sent on"


@pytest.mark.rule("M3", "M5", "M6")
@by_chance
@given(PAIRS, VALUES)
def test_headers_are_read_or_refused(pairs: list[tuple[bytes, bytes]], value: Any) -> None:
    headers = Headers(pairs)
    for name, _ in pairs:
        with suppress(Rejection):
            text = headers.single(name)
            assert text is not None
            assert text.isascii()
            mirror.decode(text, "Mcp-Name")
    with suppress(Rejection):
        mirror.check_parameters(headers, (Mirrored("mcp-param-a", ("a",)),), {"a": value})


@pytest.mark.rule("M17")
@by_chance
@given(st.binary(max_size=24) | st.sampled_from([b"localhost", b"http://localhost", b"null", b"[::1]:1"]))
def test_a_host_and_an_origin_come_in_or_are_refused(value: bytes) -> None:
    hosts, cors = AllowedHosts("127.0.0.1:8000", ["a.example"], log=captured(LogCapture())), Cors(["https://a.example"])
    headers = Headers([(b"host", value), (b"origin", value), (b"access-control-request-headers", value)])
    for check in (hosts.check_host, hosts.check_origin):
        with suppress(Rejection):
            check(headers)
    assert all(each.isascii() for each in cors.preflight(headers).values())


@pytest.mark.rule("M23")
@by_chance
@given(st.text(max_size=60), st.text(max_size=60))
def test_a_trace_is_read_or_ignored(parent: str, state: str) -> None:
    read = TraceContext.parse(parent, state)
    assert read is None or TraceContext.parse(read.header(), read.state) == read
