"""JSON as the door takes it: one text, no key twice, no number that is none, no lone surrogate (D18)."""

from __future__ import annotations

import json
from math import isinf
from typing import Any, Final, NoReturn

from mcpfleet.wire.errors import bad_envelope, bad_params, not_json

MAX_DEPTH: Final = 128
"""Levels of nesting that a body may have; a parser's own bound would be the interpreter's stack."""


class _DuplicateKey(ValueError):
    """Raised when an object has a key twice: two readers could each see another value."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DuplicateKey
    return value


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise ValueError("the number is beyond every double")
    return value


_decoder: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)


def parse(body: bytes) -> Any:
    """Read a body; integers stay exact, other numbers become doubles.

    Raises:
        Rejection: -32700 for what is no JSON or nested too deeply, -32600 for a key that stands twice.
    """
    try:
        value = _decoder.decode(body.decode())
    except _DuplicateKey:
        raise bad_envelope("a key stands twice in an object") from None
    except (ValueError, RecursionError):
        raise not_json() from None
    # As deep as it may be needs as many brackets, so that few bodies are walked.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _depth_exceeds(value, MAX_DEPTH):
        raise not_json()
    return value


def _depth_exceeds(value: Any, limit: int) -> bool:
    """Walk a value level by level, without recursion."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def refuse_surrogates(body: bytes, value: Any) -> None:
    """Refuse a lone surrogate anywhere in a parsed body, which no UTF-8 can carry on.

    Raises:
        Rejection: -32602.
    """
    # Only an escape can make one, so a body without any is not walked.
    if b"\\ud" not in body and b"\\uD" not in body:
        return
    if not is_utf8(json.dumps(value, ensure_ascii=False)):
        raise bad_params("a string has a lone surrogate")


def is_utf8(text: str) -> bool:
    """Whether a text can be written at all: one with a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
