"""Requests that differ from the vectors': in their bytes, or in the value that their body says."""

from __future__ import annotations

import json
from functools import reduce
from random import Random
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.edge_http import corpus

SEEDS = sorted(set(corpus()), key=lambda data: (len(data), data))
WORDS = [
    *(bytes([byte]) for byte in b'"{}[]:,\xff\0'),
    *(word.encode() for word in ("null", "true", "-0", "1e308", "1e999", '"id":', r'"\ud800"', "é", "2026-07-28")),
    *(word.encode() for word in ("\r\n", "\r\n\r\n", "=?base64?", "?=", "Mcp-Param-Region: ", "Origin: null\r\n")),
]
"""The characters that change a meaning."""
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 1e300, 2**70, [], {}, [[]], {"": ""}, [None]),
    *("", "x", "\ud800", "\0", "\u2028", "2026-07-28", "tools/call", "echo", "greet", "ref/prompt", "test://books/1"),
]
KEYS = ("", "id", "_meta", "name", "uri", "type", "cursor", "arguments", "requestState", "inputResponses", "context")

Edit = tuple[str, int, int, bytes]


def changed() -> st.SearchStrategy[bytes]:
    """One of the vectors' requests, after a few edits."""
    place = st.integers(0, 4_095)
    words = st.sampled_from(WORDS) | st.binary(max_size=4)
    edit: Any = st.tuples(st.sampled_from(["put", "cut", "swap", "twice"]), place, st.integers(1, 64), words)
    seeds = st.sampled_from(SEEDS)
    by_bytes = st.builds(lambda data, edits: reduce(_apply, edits, data), seeds, st.lists(edit, max_size=6))
    by_values = st.builds(lambda data, seed: revalued(data, Random(seed)), seeds, st.integers(0, 2**32))
    return by_bytes | by_values


def revalued(data: bytes, chance: Random) -> bytes:
    """The same request with another value in its body; as it is where that is no JSON."""
    head, separator, body = data.partition(b"\r\n\r\n")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return data
    for _ in range(chance.randint(1, 3)):
        value = _edited(value, chance)
    return head + separator + json.dumps(value).encode()


def _edited(value: Any, chance: Random) -> Any:
    """Change something somewhere inside."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(list(value))
        match chance.randrange(8):
            case 0:
                return {name: inner for name, inner in value.items() if name != key}
            case 1:
                return {**value, chance.choice(KEYS): chance.choice(VALUES)}
            case _:
                return {**value, key: _edited(value[key], chance)}
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], _edited(value[place], chance), *value[place + chance.randrange(2) :]]
    return chance.choice(VALUES)


def _apply(data: bytes, edit: Edit) -> bytes:
    kind, place, length, word = edit
    start = place % (len(data) + 1)
    before, chosen, after = data[:start], data[start : start + length], data[start + length :]
    match kind:
        case "put":
            return before + word + chosen + after
        case "cut":
            return before + after
        case "swap":
            return before + word + after
        case _:
            return before + chosen + chosen + after
