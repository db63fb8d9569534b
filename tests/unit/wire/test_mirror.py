"""Headers that mirror the body."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfleet.wire.envelope import Envelope
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers
from mcpfleet.wire.mirror import check_method_and_name, check_version, decode

MODERN = "2026-07-28"

Pairs = list[tuple[bytes, bytes]]


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def is_mismatch(error: Rejection) -> bool:
    return (error.status, error.code) == (400, -32020)


@pytest.mark.rule("M3")
@settings(deadline=None)
@given(st.text())
def test_every_text_survives_its_base64_form(text: str) -> None:
    assert decode(encoded(text), "Mcp-Name") == text


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "=?base64?aGk=",
        "aGk=?=",
        "=?BASE64?aGk=?=",
        "=?Base64?aGk=?=",
        "=?utf-8?aGk=?=",
        "=?base64?=",
        " =?base64?aGk=?=",
    ],
)
def test_what_lacks_the_exact_prefix_or_suffix_is_literal(text: str) -> None:
    """The markers are case-sensitive, and may not overlap."""
    assert decode(text, "Mcp-Name") == text


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    "inner",
    [
        pytest.param("aGk", id="no padding"),
        pytest.param("aGl=", id="bits that padding drops"),
        pytest.param("aG k=", id="a space"),
        pytest.param("aGk=aGk=", id="two in one"),
        pytest.param("-_8=", id="the alphabet of URLs"),
        pytest.param("!!!!", id="no Base64"),
        pytest.param("/w==", id="no UTF-8"),
        pytest.param("7aCA", id="a surrogate"),
    ],
)
def test_base64_that_is_not_canonical_utf8_is_a_mismatch(inner: str) -> None:
    with pytest.raises(Rejection) as raised:
        decode(f"=?base64?{inner}?=", "Mcp-Name")
    assert is_mismatch(raised.value)


@pytest.mark.rule("M1")
@pytest.mark.parametrize("value", [b"2026-07-28", b" 2026-07-28 "])
def test_the_version_header_equals_the_bodys_claim(value: bytes) -> None:
    check_version(Headers([(b"mcp-protocol-version", value)]), MODERN)


@pytest.mark.rule("M1")
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param([], id="missing"),
        pytest.param([(b"mcp-protocol-version", b"2025-11-25")], id="another"),
        pytest.param([(b"mcp-protocol-version", b"2026-07-28")] * 2, id="repeated"),
    ],
)
def test_another_version_header_is_a_mismatch(
    headers: Pairs,
) -> None:
    with pytest.raises(Rejection) as raised:
        check_version(Headers(headers), MODERN)
    assert is_mismatch(raised.value)


def call(name: object = "search") -> Envelope:
    return Envelope(1, "tools/call", {"name": name}, {})


def mirrored(method: str = "tools/call", name: str | None = "search") -> Pairs:
    headers = [(b"mcp-method", method.encode())]
    return headers + ([(b"mcp-name", name.encode())] if name is not None else [])


@pytest.mark.rule("T3")
@pytest.mark.parametrize("name", ["search", "=?base64?c2VhcmNo?="])
def test_a_calls_method_and_name_are_mirrored(name: str) -> None:
    check_method_and_name(Headers(mirrored(name=name)), call(), "name")


@pytest.mark.rule("T3")
def test_a_name_that_no_header_can_carry_comes_as_base64() -> None:
    check_method_and_name(Headers(mirrored(name=encoded("Bücher"))), call("Bücher"), "name")


@pytest.mark.rule("T3")
@pytest.mark.parametrize(
    ("method", "parameter"), [("tools/call", "name"), ("prompts/get", "name"), ("resources/read", "uri")]
)
def test_the_methods_that_name_their_target(method: str, parameter: str) -> None:
    envelope = Envelope(1, method, {parameter: "x"}, {})
    check_method_and_name(Headers(mirrored(method, "x")), envelope, parameter)
    with pytest.raises(Rejection) as raised:
        check_method_and_name(Headers(mirrored(method, None)), envelope, parameter)
    assert is_mismatch(raised.value)


@pytest.mark.rule("T3")
@pytest.mark.parametrize("method", ["server/discover", "tools/list", "completion/complete"])
def test_other_methods_state_no_name(method: str) -> None:
    check_method_and_name(Headers(mirrored(method, None)), Envelope(1, method, {}, {}), None)


@pytest.mark.rule("T3")
@pytest.mark.parametrize(
    ("headers", "envelope"),
    [
        pytest.param([(b"mcp-name", b"search")], call(), id="no method"),
        pytest.param(mirrored("tools/list"), call(), id="another method"),
        pytest.param(mirrored("Tools/Call"), call(), id="another case"),
        pytest.param(mirrored(name=None), call(), id="no name"),
        pytest.param(mirrored(name="find"), call(), id="another name"),
        pytest.param(mirrored(name="Search"), call(), id="a name in another case"),
        pytest.param([*mirrored(), (b"mcp-name", b"search")], call(), id="a repeated name"),
        pytest.param([*mirrored(), (b"mcp-method", b"tools/call")], call(), id="a repeated method"),
        pytest.param(mirrored(name="5"), call(5), id="a name that is no string"),
        pytest.param(mirrored(name="None"), call(None), id="a name that is null"),
    ],
)
def test_what_differs_from_the_body_is_a_mismatch(headers: Pairs, envelope: Envelope) -> None:
    with pytest.raises(Rejection) as raised:
        check_method_and_name(Headers(headers), envelope, "name")
    assert is_mismatch(raised.value)


@pytest.mark.rule("T16")
def test_a_mismatch_repeats_nothing_that_was_sent() -> None:
    with pytest.raises(Rejection) as raised:
        check_method_and_name(Headers(mirrored(name="secret-1")), call("secret-2"), "name")
    assert "secret" not in raised.value.message
