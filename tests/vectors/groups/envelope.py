"""Group 6: the JSON-RPC envelope, and the id that every answer carries."""

from __future__ import annotations

import json
from typing import Any

from tests.vectors.making import Ask, Group, call, request, vector

BAD: dict[str, tuple[Any, Any]] = {
    "a batch": ([request("tools/list")], None),
    "an empty batch": ([], None),
    "a posted result": ({"jsonrpc": "2.0", "id": 1, "result": {}}, None),
    "a posted error": ({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}, None),
    "a text": ("tools/list", None),
    "null": (None, None),
    "a number": (7, None),
    "no version of JSON-RPC": ({"id": 1, "method": "tools/list"}, 1),
    "another version of JSON-RPC": ({**request("tools/list"), "jsonrpc": "1.0"}, 1),
    "a number as version": ({**request("tools/list"), "jsonrpc": 2.0}, 1),
    "a method that is no string": ({**request("tools/list"), "method": 7}, 1),
    "a method that is null": ({**request("tools/list"), "method": None}, 1),
    "an id that is null": (request("tools/list", identifier=None), None),
    "an id that is a boolean": (request("tools/list", identifier=True), None),
    "an id that is an object": (request("tools/list", identifier={}), None),
    "an id that is a list": (request("tools/list", identifier=[1]), None),
    "neither an id nor a method": ({"jsonrpc": "2.0"}, None),
    "a result without an id": ({"jsonrpc": "2.0", "result": {}}, None),
}

RULES = {"a batch": "M8", "an empty": "M8", "a posted": "M8 T36"}
"""The rules that vectors show, by the beginning of their names."""
IDS = (1, "1", 0, -7, "", 1.5, 2**70, "\u2028", "\U0001f600", '"quoted"\\')

GROUP = Group(
    "envelope",
    "A body is one request or one notification. Whatever answers a readable id carries it in its type.",
    [
        *(
            vector(
                name,
                "M8 T36"
                if name.startswith("a posted")
                else "M8"
                if name.startswith(("a batch", "an empty"))
                else "T11",
                Ask(message),
                400,
                code=-32600,
                identifier=identifier,
                row="bad-envelope",
            )
            for name, (message, identifier) in BAD.items()
        ),
        *(
            vector(
                f"params that are {json.dumps(params)}",
                "T11",
                Ask({**request("tools/list"), "params": params}, {"MCP-Protocol-Version": "2026-07-28"}),
                400,
                code=-32602,
                row="bad-params",
            )
            for params in (None, [], [1], "a", 5, True)
        ),
        *(
            vector(f"a result for the id {json.dumps(each)}", "M2 T6", Ask(call(identifier=each)), 200, result={})
            for each in IDS
        ),
        *(
            vector(
                f"an error for the id {json.dumps(each)}",
                "M2 T6",
                Ask(request("tools/burn", identifier=each)),
                404,
                code=-32601,
                row="unknown-method",
            )
            for each in IDS
        ),
        vector("members that JSON-RPC does not know", "T10", Ask({**call(), "extra": [1]}), 200, result={}),
    ],
)
