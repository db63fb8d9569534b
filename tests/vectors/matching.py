"""Whether an answer is what a vector expects; says what is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.vectors.http1 import Answer

CACHE_CONTROL = "no-store, no-transform"


def differences(answer: Answer, expected: dict[str, Any]) -> Iterator[str]:
    """Say in what an answer differs from what is expected."""
    if answer.status != expected["status"]:
        yield f"status {answer.status}, not {expected['status']}"
    if answer.all("cache-control") != [CACHE_CONTROL]:
        yield f"cache-control {answer.all('cache-control')} (T9)"
    if answer.ends != expected.get("ends"):
        yield "the connection ended" if answer.ends else "the connection goes on"
    for name, value in expected.get("headers", []):
        if answer.all(name) != [value]:
            yield f"{name} {answer.all(name)}, not {[value]}"
    for name in expected.get("lacks", []):
        if answer.all(name):
            yield f"{name} {answer.all(name)}, not absent"
    yield from _body(answer, expected["body"])
    for text in expected.get("hides", []):
        if text.encode() in answer.body:
            yield f"the body repeats {text!r}"


def _body(answer: Answer, pattern: Any) -> Iterator[str]:
    if pattern is None:
        if answer.body:
            yield f"a body, which should be none: {answer.body!r}"
        return
    if answer.all("content-type") != ["application/json"]:
        yield f"content-type {answer.all('content-type')}"
    try:
        value = json.loads(answer.body)
    except ValueError:
        yield f"a body that is no JSON: {answer.body!r}"
        return
    found = list(mismatches(value, pattern))
    yield from found
    if found:
        yield f"the body is {answer.body[:2_000]!r}"


def mismatches(value: Any, pattern: Any, path: str = "body") -> Iterator[str]:
    """Say where a value is not of a pattern: members that the pattern does not name may be there."""
    match pattern:
        case {"$absent": True}:
            yield f"{path} is there"
        case {"$exactly": exact}:
            if json.dumps(value, sort_keys=True) != json.dumps(exact, sort_keys=True):
                yield f"{path} is {value!r}, not {exact!r}"
        case {"$text": True} | {"$number": True} | {"$contains": _}:
            if not _passes(value, pattern):
                yield f"{path} is {value!r}, which does not pass {pattern}"
        case dict():
            yield from _members(value, pattern, path)
        case list():
            yield from _entries(value, pattern, path)
        case _ if json.dumps(value) != json.dumps(pattern):  # 1, 1.0, "1" and true are four values
            yield f"{path} is {value!r}, not {pattern!r}"


def _passes(value: Any, test: dict[str, Any]) -> bool:
    match test:
        case {"$text": True}:
            return isinstance(value, str) and value != ""
        case {"$number": True}:
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case _:
            inner = test["$contains"]
            return isinstance(value, list) and any(not any(mismatches(each, inner)) for each in value)


def _entries(value: Any, pattern: list[Any], path: str) -> Iterator[str]:
    if not isinstance(value, list) or len(value) != len(pattern):
        yield f"{path} has not {len(pattern)} entries"
        return
    for index, (each, inner) in enumerate(zip(value, pattern, strict=True)):
        yield from mismatches(each, inner, f"{path}[{index}]")


def _members(value: Any, pattern: dict[str, Any], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path} is no object"
        return
    for name, inner in pattern.items():
        if name in value:
            yield from mismatches(value[name], inner, f"{path}.{name}")
        elif inner != {"$absent": True}:
            yield f"{path}.{name} is missing"
