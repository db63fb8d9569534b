"""A text's values are counted as a parser would make them, and bounded before any is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.scan import DIGITS, MAX_DEPTH, MAX_VALUES, SLICE, Scan, scan
from mcpfleet.wire.strict import parse_scanned, refuse_surrogates
from tests.kit.cost import cost, cost_of_longest_turn

MEGABYTES_7 = 7 * 1024 * 1024
TEXT = st.text(st.sampled_from('ab[]{},:"\\\n\u00e9\U0001f600') | st.characters(codec="utf-8"), max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


def counted(value: Any) -> int:
    """Commas, colons and opening brackets that stand for it."""
    if isinstance(value, dict):
        return 1 + len(value) + max(0, len(value) - 1) + sum(map(counted, value.values()))
    return 1 + max(0, len(value) - 1) + sum(map(counted, value)) if isinstance(value, list) else 0


def digits(value: Any) -> int:
    """Characters of the numbers in it; the `e` of `true` and `false` cannot be told from that of a number."""
    if isinstance(value, bool):
        return 1
    if isinstance(value, (int, float)):
        return len(json.dumps(value))
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(map(digits, inner))


def seen(parts: list[bytes], most: int, levels: int = MAX_DEPTH) -> int | None:
    """The code that refuses a text in parts, or None."""
    look = Scan(most, levels)
    try:
        for part in parts:
            look.feed(part)
    except Rejection as rejection:
        return rejection.code
    return None


@pytest.mark.rule("T31")
@settings(max_examples=300, deadline=None)
@given(VALUES, st.booleans(), st.lists(st.integers(0, 500), max_size=6))
def test_values_are_counted_whatever_texts_hold_and_wherever_slices_end(
    value: Any, ascii_only: bool, places: list[int]
) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode(errors="replace")
    marks = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    parts = [body[start:end] for start, end in pairwise(marks)]
    most = counted(value) + digits(value) // DIGITS
    assert seen(parts, most) is None
    if most > 0:
        assert seen(parts, most - 1) == -32600


@pytest.mark.rule("T31")
@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
def test_levels_are_counted_over_slices(opening: bytes) -> None:
    levels = MAX_DEPTH // (opening.count(b"[") + opening.count(b"{"))
    closing = b"".join(b"]" if each == 0x5B else b"}" for each in reversed(opening) if each in b"[{")
    before = b"[" + b"[]," * MAX_DEPTH
    fits = before + opening * (levels - 1) + b"1" + closing * (levels - 1) + b"]"
    over = before + opening * levels + b"1" + closing * levels + b"]"
    for size in (1, 7, 1_000, len(over)):
        parts = [[text[start : start + size] for start in range(0, len(text), size)] for text in (fits, over)]
        assert [seen(each, MAX_VALUES) for each in parts] == [None, -32700]


@pytest.mark.rule("T31")
@settings(max_examples=300, deadline=None)
@given(st.text("[]{}", max_size=60), st.integers(1, 8), st.integers(1, 70))
def test_the_highest_level_is_found_whatever_follows_and_precedes(text: str, levels: int, size: int) -> None:
    """Eight steps are followed at once: none of them may be overlooked."""
    highest = max(accumulate(1 if each in "[{" else -1 for each in text), default=0)
    parts = [text[start : start + size].encode() for start in range(0, len(text), size)]
    assert seen(parts, MAX_VALUES, levels) == (-32700 if highest > levels else None)


def filled(unit: bytes) -> bytes:
    """A list of seven megabytes."""
    return b"[" + b",".join([unit] * ((MEGABYTES_7 - 2) // (len(unit) + 1))) + b"]"


def full(unit: bytes, values: int) -> bytes:
    """A list of as many values as a body may have, and a text that makes seven megabytes of it."""
    head = b"[" + b",".join([unit] * ((MAX_VALUES - 10) // values))
    return head + b',"' + b"a" * (MEGABYTES_7 - len(head)) + b'"]'


WORST = {
    "lists": filled(b"[]"),
    "objects": filled(b"{}"),
    "lists in lists": filled(b"[" * 20 + b"]" * 20),
    "objects with a key": filled(b'{"a":1}'),
    "numbers": filled(b"1"),
    "powers": filled(b"1e308"),
    "small numbers": filled(b"1.7976931348623157e-308"),
    "long numbers": filled(b"9" * 4_299),
    "texts": filled(b'""'),
    "words": filled(b"null"),
    "one number": b"1" * MEGABYTES_7,
    "one level in another": b"[" * MEGABYTES_7,
    "one object in another": b'{"a":' * (MEGABYTES_7 // 5),
    "as deep as may be, again and again": filled(b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)),
    "one text": b'"' + b"a" * MEGABYTES_7 + b'"',
    "escapes": b'"' + rb"\u0041" * (MEGABYTES_7 // 6) + b'"',
    "escaped quotes": b'"' + rb"\"" * (MEGABYTES_7 // 2) + b'"',
    "escaped backslashes": b'"' + rb"\\" * (MEGABYTES_7 // 2) + b'"',
    "brackets in a text": b'"' + b"[{" * (MEGABYTES_7 // 2) + b'"',
    "space": b" " * MEGABYTES_7,
    "line ends": b"\n" * MEGABYTES_7 + b"}",
    "a text without an end": b'"' + b"a" * MEGABYTES_7,
    "as many lists as may be": full(b"[]", 2),
    "as many objects as may be": full(b"{}", 2),
    "as many keys as may be": full(b'{"a":""}', 3),
    "as many powers as may be": full(b"1e308", 2),
    "as many small numbers as may be": full(b"1.7976931348623157e-308", 7),
    "as many long numbers as may be": full(b"9" * 4_299, 1_076),
}


@pytest.mark.rule("T31")
@pytest.mark.parametrize("name", WORST)
def test_no_body_holds_the_loop_for_long(name: str) -> None:
    """Aim: 50 ms for a slice, or a parse, where a parse of the measure takes 4.5 ms; the worst costs 10 of them."""
    body = WORST[name]

    def read() -> Iterator[None]:
        try:
            yield from scan(body, MAX_VALUES)
            parse_scanned(body)
        except Rejection:
            pass

    assert cost_of_longest_turn(read) < 25
    assert len(list(read())) <= -(-len(body) // SLICE)


@pytest.mark.rule("T31")
@pytest.mark.parametrize(
    "unit", [b"[", b"[]", b"[" * 100 + b"]" * 100, b'{"a":', b'{"a":{}},'], ids=lambda unit: unit[:9]
)
def test_a_slice_of_brackets_is_scanned_in_milliseconds(unit: bytes) -> None:
    """It needs no token; 20 of them are the five megabytes that may cost half a second."""
    body = unit * (SLICE // len(unit))
    assert cost(lambda: seen([body], SLICE)) < 6


@pytest.mark.rule("D18")
@pytest.mark.parametrize("unit", [rb"\\", rb"\n", rb"\u00e9", b"u"])
def test_lone_surrogates_are_looked_for_in_milliseconds(unit: bytes) -> None:
    """An expression finds where an escape of one begins in a quarter of the time that `in` takes."""
    body = b'"' + unit * (MEGABYTES_7 // len(unit)) + b'"'
    assert cost(lambda: refuse_surrogates(body, None)) < 16
