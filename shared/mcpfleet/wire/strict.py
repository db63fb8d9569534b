"""Strict JSON: one text, no repeated key, no infinite number, no lone surrogate (D18); and JSON in canonical form."""

from __future__ import annotations

import json
import re
from math import isinf
from typing import Any, Final, NoReturn

from pydantic_core import to_json

from mcpfleet.wire.errors import bad_envelope, bad_params, not_json
from mcpfleet.wire.scan import MAX_VALUES, scan, without_gc

_SMALL: Final = 16 * 1024
"""Bytes of a body that makes few objects."""
_SURROGATE: Final = re.compile(rb"\\u[dD]")
"""The beginning of a surrogate's escape."""


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


def parse(body: bytes, most: int = MAX_VALUES) -> Any:
    """Read a body; integers stay exact, other numbers become doubles.

    Args:
        body: the whole.
        most: the most values and keys (`Scan`).

    Raises:
        Rejection: -32700 for a body that is not JSON or is nested too deeply, -32600 for a repeated key or too many
            values.
    """
    for _ in scan(body, most):
        pass
    return parse_scanned(body)


def parse_scanned(body: bytes) -> Any:
    """Read a scanned body, as `parse` does."""
    try:
        if len(body) <= _SMALL:
            return _decoder.decode(body.decode())
        with without_gc():
            return _decoder.decode(body.decode())
    except _DuplicateKey:
        raise bad_envelope("a key stands twice in an object") from None
    except (ValueError, RecursionError):
        raise not_json() from None


def refuse_surrogates(body: bytes, value: Any) -> None:
    """Refuse a lone surrogate anywhere in a parsed body, which UTF-8 cannot carry on.

    Raises:
        Rejection: -32602.
    """
    # Only an escape can make one, so a body without any is not walked. The expression is four times as fast as `in` on
    # a body of backslashes.
    if _SURROGATE.search(body) is None:
        return
    try:
        to_json(value)
    except ValueError:
        raise bad_params("a string has a lone surrogate") from None


def is_utf8(text: str) -> bool:
    """Return whether a text can be written at all; one with a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
