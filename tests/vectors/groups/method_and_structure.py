"""Group 10: the method is known, and its parameters have its form; and methods of what is not offered."""

from __future__ import annotations

import json
from typing import Any

from tests.vectors.making import VERSION, Ask, Group, request, vector

UNKNOWN = ("tools/burn", "tools/Call", "tools", "", "ping", "logging/setLevel", "rpc.discover", "initialized")
NEVER_MODERN = ("resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result", "roots/list")

COMPLETE = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}}
BAD_REFERENCES: tuple[Any, ...] = (
    None,
    {"type": "ref/tool", "name": "a"},
    {"type": [], "": "a"},
    {"type": "x", "": "a"},
    {"": "a"},
    {"type": "ref/prompt"},
    {"type": "ref/prompt", "name": 5},
    {"type": "ref/resource", "name": "a"},
)
BAD_ARGUMENTS: tuple[Any, ...] = ({"name": "a"}, {"name": "a", "value": 1}, [])
BAD_CONTEXTS: tuple[Any, ...] = ([], None, {"arguments": {"b": 1}})
BAD_STRUCTURES: list[tuple[str, str, dict[str, Any]]] = [
    ("tools/call", "T11", {"name": "echo", "arguments": []}),
    ("tools/call", "T11", {"name": "echo", "arguments": "x"}),
    ("tools/call", "M51", {"name": "echo", "inputResponses": None}),
    ("tools/call", "M51", {"name": "echo", "inputResponses": []}),
    ("tools/call", "M52", {"name": "echo", "requestState": 5}),
    ("tools/call", "M52", {"name": "echo", "requestState": None}),
    ("tools/list", "M47", {"cursor": 5}),
    ("prompts/list", "M47", {"cursor": {}}),
    ("resources/list", "M47", {"cursor": []}),
    ("resources/templates/list", "M47", {"cursor": True}),
    ("prompts/get", "M41", {"name": "a", "arguments": []}),
    ("prompts/get", "M41", {"name": "a", "arguments": {"number": 5}}),
    ("prompts/get", "M51", {"name": "a", "inputResponses": 5}),
    ("resources/read", "M43", {"uri": ""}),
    ("resources/read", "M43", {"uri": "test://" + "u" * 2_048}),
    ("resources/read", "M52", {"uri": "test://a", "requestState": []}),
    ("completion/complete", "M48", {}),
    *(("completion/complete", "M48", {"ref": ref, "argument": {"name": "a", "value": ""}}) for ref in BAD_REFERENCES),
    *(
        ("completion/complete", "M48", {"ref": {"type": "ref/prompt", "name": "a"}, "argument": argument})
        for argument in BAD_ARGUMENTS
    ),
    *(
        (
            "completion/complete",
            "M48",
            {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": ""}, "context": context},
        )
        for context in BAD_CONTEXTS
    ),
]


def _said(method: str, params: dict[str, Any]) -> str:
    text = json.dumps(params)
    return f"{method} with {text if len(text) < 200 else 'a URI that is too long'}"


GROUP = Group(
    "method-and-structure",
    "Unknown methods are 404, and so are those of a capability that the endpoint does not offer (`/bare` has none); "
    "the parameters' form is looked at before the caller and the target.",
    [
        *(
            vector(f"the method {method!r}", "M14", Ask(request(method)), 404, code=-32601, row="unknown-method")
            for method in UNKNOWN
        ),
        *(
            vector(f"{method}, which is not of this revision", "M14", Ask(request(method)), 404, code=-32601)
            for method in NEVER_MODERN
        ),
        *(
            vector(
                f"{method} where it is not offered",
                "M14 M33",
                Ask(request(method, params), path="/bare"),
                404,
                code=-32601,
                row="unknown-method",
            )
            for method, params in (
                ("tools/list", {}),
                ("tools/call", {"name": "echo"}),
                ("prompts/list", {}),
                ("prompts/get", {"name": "a"}),
                ("resources/list", {}),
                ("resources/templates/list", {}),
                ("resources/read", {"uri": "test://a"}),
                (
                    "completion/complete",
                    {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": ""}},
                ),
            )
        ),
        vector(
            "discovery where nothing is offered",
            "M33 D15",
            Ask(request("server/discover"), path="/bare"),
            200,
            result={"capabilities": {"$exactly": {}}},
        ),
        *(
            vector(
                _said(method, params),
                f"T11 {rule}",
                Ask(request(method, params)),
                400,
                code=-32602,
                row="bad-params",
            )
            for method, rule, params in BAD_STRUCTURES
        ),
        vector(
            "a call without a name",
            "T3",
            Ask(request("tools/call")),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        *(
            vector(f"null instead of {name}", "L22", Ask(request(method, params)), 200, result={})
            for name, method, params in (
                ("a call's arguments", "tools/call", {"name": "null", "arguments": None}),
                ("a list's cursor", "tools/list", {"cursor": None}),
                ("the cursor of templates", "resources/templates/list", {"cursor": None}),
                ("arguments of a context", "completion/complete", {**COMPLETE, "context": {"arguments": None}}),
            )
        ),
        vector(
            "null instead of parameters",
            "L22",
            Ask({**request("tools/list"), "params": None}, {"MCP-Protocol-Version": VERSION}),
            400,
            code=-32602,
            row="bad-params",
        ),
        vector(
            "a call without arguments is one with none",
            "T11",
            Ask(request("tools/call", {"name": "null"})),
            200,
            result={"isError": False},
        ),
    ],
)
