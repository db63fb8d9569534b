"""Two faults in one request: the answer is the one that is checked first, for every pair."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.vectors.groups.limits import BODY
from tests.vectors.making import CAPABILITIES_KEY, VERSION_KEY, Ask, Group, request, vector


def _sound() -> Ask:
    """A call that has no fault: it needs a capability, and mirrors an argument."""
    params = {"name": "ask", "arguments": {"region": "eu"}}
    capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}}
    return Ask(request("tools/call", params, meta={CAPABILITIES_KEY: capabilities}), {"Mcp-Param-Region": "eu"})


def _params(ask: Ask) -> dict[str, Any]:
    params: dict[str, Any] = ask.message["params"]
    return params


@dataclass(frozen=True)
class Fault:
    """A fault, and its answer."""

    name: str
    spoil: Callable[[Ask], Any]
    status: int
    code: int | None = None
    has_id: bool = True
    result: dict[str, Any] | None = None


def _header(name: str, value: str | None) -> Callable[[Ask], None]:
    return lambda ask: ask.headers.update({name: value})


def _no_json(ask: Ask) -> None:
    ask.raw = "{"


def _key_twice(ask: Ask) -> None:
    ask.raw = '{"jsonrpc": "2.0", "id": 1, "id": 1, "method": "tools/call"}'


def _large(ask: Ask) -> None:
    ask.padding = BODY + 1


LADDER = (
    Fault("an unknown path", lambda ask: setattr(ask, "path", "/other"), 404, -32600, has_id=False),
    Fault("a foreign Host", _header("Host", "evil.example.com"), 403, -32600, has_id=False),
    Fault("a foreign Origin", _header("Origin", "https://evil.example.com"), 403, -32600, has_id=False),
    Fault("another method of HTTP", lambda ask: setattr(ask, "method", "PUT"), 405, -32600, has_id=False),
    Fault("another media type", _header("Content-Type", "text/plain"), 415, -32600, has_id=False),
    Fault("an Accept without events", _header("Accept", "application/json"), 406, -32600, has_id=False),
    Fault("a coding", _header("Content-Encoding", "gzip"), 415, -32600, has_id=False),
    Fault("a body that is too large", _large, 413, -32600, has_id=False),
    Fault("no JSON", _no_json, 400, -32700, has_id=False),
    Fault("a key that stands twice", _key_twice, 400, -32600, has_id=False),
    Fault("a bad envelope", lambda ask: ask.message.update(jsonrpc="1.0"), 400, -32600),
    Fault("no capabilities", lambda ask: _params(ask)["_meta"].pop(CAPABILITIES_KEY, None), 400, -32602),
    Fault("another version in the header", _header("MCP-Protocol-Version", "2025-11-25"), 400, -32020),
    Fault("no method in the headers", _header("Mcp-Method", None), 400, -32020),
    Fault(
        "a version that is not served",
        lambda ask: _params(ask)["_meta"].update({VERSION_KEY: "2099-01-01"}),
        400,
        -32022,
    ),
    Fault("an unknown method", lambda ask: ask.message.update(method="tools/burn"), 404, -32601),
    Fault("a bad structure", lambda ask: _params(ask).update(arguments=[]), 400, -32602),
    Fault("an unknown tool", lambda ask: _params(ask).update(name="nothing"), 400, -32602),
    Fault("another argument in its header", _header("Mcp-Param-Region", "us"), 400, -32020),
    Fault("a state that is not ours", lambda ask: _params(ask).update(requestState="x"), 400, -32602),
    Fault(
        "a capability that is missing",
        lambda ask: _params(ask)["_meta"].update({CAPABILITIES_KEY: {}}),
        400,
        -32021,
    ),
    Fault(
        "an argument that is not declared",
        lambda ask: _params(ask).update(arguments={"region": "eu", "other": 1}),
        200,
        result={"isError": True},
    ),
)
"""From top to bottom."""


def _vector(name: str, *faults: Fault) -> dict[str, Any]:
    ask = _sound()
    for fault in reversed(faults):  # so that the first has the last word where both change one place
        fault.spoil(ask)
    first = faults[0]
    return vector(
        name,
        "T11",
        ask,
        first.status,
        code=first.code,
        result=first.result,
        identifier=1 if first.has_id else None,
    )


GROUP = Group(
    "order",
    "Checks have one order, and the first failure is the answer: each fault alone, and each pair of them. A body over "
    "its limit is met when the body is read, after the head.",
    [
        vector("no fault", "T11", _sound(), 200, result={"isError": False}),
        *(_vector(fault.name, fault) for fault in LADDER),
        *(
            _vector(f"{first.name}, and {second.name}", first, second)
            for first, second in itertools.combinations(LADDER, 2)
        ),
    ],
)
