"""JSON as an edge takes it (D18)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.scan import MAX_DEPTH
from mcpfleet.wire.strict import parse, refuse_surrogates

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def code_of(body: bytes) -> int | None:
    with pytest.raises(Rejection) as raised:
        parse(body)
    assert raised.value.status == 400
    return raised.value.code


@settings(deadline=None)
@given(JSON)
def test_what_json_can_say_is_read_as_it_was_written(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.rule("D18")
@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"9007199254740993", 9007199254740993),
        (b"[1, 1.0, 1e2, -0.5]", [1, 1.0, 100.0, -0.5]),
        (b" \t\r\n{ } \n", {}),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\u0000"', "\0"),
        ('"\u2028\u2029\u0085"'.encode(), "\u2028\u2029\u0085"),
    ],
)
def test_numbers_stay_exact_and_texts_stay_whole(body: bytes, value: object) -> None:
    """Integers of any size are exact, others become doubles."""
    read = parse(body)
    assert read == value
    assert repr(read) == repr(value)


@pytest.mark.rule("D18")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"{", id="unfinished"),
        pytest.param(b"{} {}", id="two texts"),
        pytest.param(b'{"a":1,}', id="trailing comma"),
        pytest.param(b"{'a':1}", id="single quotes"),
        pytest.param(b"{} // why", id="comment"),
        pytest.param(b"nul", id="misspelled"),
        pytest.param(b"NaN", id="NaN"),
        pytest.param(b"[Infinity]", id="Infinity"),
        pytest.param(b'{"a":-Infinity}', id="-Infinity"),
        pytest.param(b"01", id="leading zero"),
        pytest.param(b"+1", id="plus"),
        pytest.param(b".5", id="no integer part"),
        pytest.param(b"1.", id="no fraction"),
        pytest.param(b'"\x01"', id="raw control character"),
        pytest.param(b'"\xff"', id="no UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', id="surrogate as UTF-8"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param("{}".encode("utf-16"), id="UTF-16"),
    ],
)
def test_what_is_no_json_is_a_parse_error(body: bytes) -> None:
    assert code_of(body) == -32700


@pytest.mark.rule("D18")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"a":1,"a":1}', id="the same value"),
        pytest.param(b'[{"a":{"b":1,"c":2,"b":3}}]', id="nested"),
        pytest.param(rb'{"a":1,"\u0061":2}', id="escaped"),
    ],
)
def test_a_key_that_stands_twice_is_a_bad_envelope(body: bytes) -> None:
    """Two readers could each see another value."""
    assert code_of(body) == -32600


@pytest.mark.rule("D18")
@pytest.mark.parametrize("body", [b"1e400", b'{"a":[-1e400]}'])
def test_a_number_beyond_every_double_is_refused(body: bytes) -> None:
    """As a double it would be infinity, which no JSON can carry on to a worker or back to the client."""
    with pytest.raises(Rejection):
        parse(body)


def test_an_integer_of_thousands_of_digits_is_refused_and_not_computed() -> None:
    with pytest.raises(Rejection):
        parse(b"1" * 1_000_000)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nesting_is_bounded_by_us_and_not_by_the_interpreters_stack(opening: bytes, closing: bytes) -> None:
    def nested(levels: int) -> bytes:
        return opening * levels + b"1" + closing * levels

    parse(nested(MAX_DEPTH))
    assert code_of(nested(MAX_DEPTH + 1)) == -32700
    assert code_of(nested(100_000)) == -32700


@pytest.mark.parametrize("siblings", [1_000])
def test_many_values_side_by_side_are_not_deep(siblings: int) -> None:
    assert len(parse(b"[" + b",".join([b"[{}]"] * siblings) + b"]")) == siblings


@pytest.mark.rule("D18")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(rb'{"a":"\ud800"}', id="high"),
        pytest.param(rb'{"a":"\uDC00"}', id="low"),
        pytest.param(rb'{"a":["x",{"b":"\ude00\ud83d"}]}', id="the wrong way round"),
        pytest.param(rb'{"\ud800":1}', id="in a key"),
    ],
)
def test_a_lone_surrogate_is_invalid_params(body: bytes) -> None:
    """No UTF-8 can carry it on."""
    with pytest.raises(Rejection) as raised:
        refuse_surrogates(body, parse(body))
    assert (raised.value.status, raised.value.code) == (400, -32602)


@pytest.mark.rule("D18")
@pytest.mark.parametrize("body", [rb'"\ud83d\ude00"', rb'"\\ud800"', rb'{"\\uDC00":"\\ud800"}'])
def test_a_pair_or_a_text_that_looks_like_one_is_no_lone_surrogate(body: bytes) -> None:
    refuse_surrogates(body, parse(body))
