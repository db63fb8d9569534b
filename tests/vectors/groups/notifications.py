"""Notifications: which are accepted, and what of them is not looked at."""

from __future__ import annotations

import json

from tests.vectors.making import CAPABILITIES_KEY, VERSION, VERSION_KEY, Ask, Group, notification, vector

ACCEPTED: dict[str, object] = {
    "as the official TypeScript client sends it": {"requestId": 1, "_meta": {VERSION_KEY: VERSION}},
    "no _meta": {"requestId": 1},
    "bad parameters": {"requestId": {}, "reason": 5},
    "_meta that is no object": {"_meta": 5},
    "bad capabilities": {"_meta": {CAPABILITIES_KEY: []}},
    "another version in _meta": {"_meta": {VERSION_KEY: "2099-01-01"}},
    "parameters in a list": [1],
    "parameters that are null": None,
}

_HEADERS = {"Mcp-Method": None, "MCP-Protocol-Version": None}

GROUP = Group(
    "notifications",
    "An accepted one is an empty 202, a refused one an empty 4xx.",
    [
        *(
            vector(
                f"a cancellation: {name}",
                "T4 T15 M9",
                Ask(notification(params=params), dict(_HEADERS)),
                202,
                lacks=["Content-Type", "Mcp-Session-Id"],
            )
            for name, params in ACCEPTED.items()
        ),
        vector("a cancellation without parameters", "T15", Ask(notification(), dict(_HEADERS)), 202),
        vector(
            "a cancellation under the version that is served",
            "T13",
            Ask(notification(), {"MCP-Protocol-Version": VERSION}),
            202,
        ),
        vector(
            "a cancellation under headers that mirror something else",
            "T4",
            Ask(notification(), {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}),
            202,
        ),
        *(
            vector(f"the notification {method!r}", "T14 M9", Ask(notification(method)), 400, row="notification")
            for method in ("notifications/initialized", "notifications/unknown", "tools/list", "")
        ),
        *(
            vector(
                f"the version header {version!r}",
                "T14",
                Ask(notification(), {"MCP-Protocol-Version": version}),
                400,
                row="notification",
            )
            for version in ("2099-01-01", "2025-11-25", "")
        ),
        vector(
            "the version header twice",
            "T13",
            Ask(notification(), {"MCP-Protocol-Version": [VERSION, VERSION]}),
            400,
            row="notification",
        ),
        *(
            vector(
                f"a bad envelope: {json.dumps(message)}",
                "T4 M9",
                Ask(message),
                400,
                row="notification",
            )
            for message in (
                {"jsonrpc": "1.0", "method": "notifications/cancelled"},
                {"method": "notifications/cancelled"},
                {"jsonrpc": "2.0", "method": "notifications/unknown", "params": []},
            )
        ),
        vector(
            "an id that is null makes no notification",
            "T4 M2",
            Ask({"jsonrpc": "2.0", "id": None, "method": "notifications/cancelled"}),
            400,
            code=-32600,
            identifier=None,
            row="bad-envelope",
        ),
        vector(
            "a cancellation with an id is a request of an unknown method",
            "M10 M14",
            Ask(
                {
                    "jsonrpc": "2.0",
                    "id": 1,
                    "method": "notifications/cancelled",
                    "params": {"_meta": {VERSION_KEY: VERSION, CAPABILITIES_KEY: {}}},
                }
            ),
            404,
            code=-32601,
            row="unknown-method",
        ),
    ],
)
