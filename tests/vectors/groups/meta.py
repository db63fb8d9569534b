"""Group 7: required members of `_meta`, and extensions."""

from __future__ import annotations

import json
from typing import Any

from tests.vectors.making import (
    CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    VERSION,
    VERSION_KEY,
    Ask,
    Group,
    call,
    request,
    vector,
)

CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def _without(key: str) -> dict[str, Any]:
    message = call()
    del message["params"]["_meta"][key]
    return message


UNKNOWN: dict[str, Any] = {
    CAPABILITIES_KEY: {"extensions": {"com.example/x": {"a": [1]}}, "experimental": []},
    "com.example/key": [1, None],
    CLIENT_INFO_KEY: "no object",
    "progressToken": {},
    "traceparent": "nonsense",
    "tracestate": 5,
    "baggage": [],
}
NO_TEXTS: tuple[Any, ...] = (None, 7, [VERSION], {})
NO_OBJECTS: tuple[Any, ...] = (None, [], "sampling", 5, True)
BAD_EXTENSIONS: tuple[Any, ...] = (None, [], "x", {"com.example/x": None}, {"com.example/x": []})
NO_LEVELS: tuple[Any, ...] = ("loud", "INFO", "", None, 5, [])

GROUP = Group(
    "meta",
    "Each request states its version and its client's capabilities; what is unknown passes, whatever its form.",
    [
        vector(
            "no claim of a version, under the header",
            "M1 M20",
            Ask(_without(VERSION_KEY), {"MCP-Protocol-Version": VERSION}),
            400,
            code=-32602,
            row="bad-params",
        ),
        vector("no capabilities", "M20", Ask(_without(CAPABILITIES_KEY)), 400, code=-32602, row="bad-params"),
        *(
            vector(
                f"a version that is {json.dumps(value)}",
                "M20",
                Ask(call(meta={VERSION_KEY: value}), {"MCP-Protocol-Version": VERSION}),
                400,
                code=-32602,
                row="bad-params",
            )
            for value in NO_TEXTS
        ),
        *(
            vector(
                f"capabilities that are {json.dumps(value)}",
                "M20",
                Ask(call(meta={CAPABILITIES_KEY: value})),
                400,
                code=-32602,
                row="bad-params",
            )
            for value in NO_OBJECTS
        ),
        *(
            vector(
                f"extensions that are {json.dumps(value)}",
                "T10",
                Ask(call(meta={CAPABILITIES_KEY: {"extensions": value}})),
                400,
                code=-32602,
                row="bad-extensions",
            )
            for value in BAD_EXTENSIONS
        ),
        *(
            vector(
                f"_meta that is {json.dumps(value)}",
                "M20",
                Ask(
                    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": value}},
                    {"MCP-Protocol-Version": VERSION},
                ),
                400,
                code=-32602,
                row="bad-params",
            )
            for value in NO_OBJECTS
        ),
        vector("unknown members, of any form", "T10 M20 M23 M25", Ask(call(meta=UNKNOWN)), 200, result={}),
        *(
            vector(f"the log level {level}", "M21", Ask(call(meta={LOG_LEVEL_KEY: level})), 200, result={})
            for level in LEVELS
        ),
        *(
            vector(
                f"a log level that is {json.dumps(level)}",
                "M21",
                Ask(call(meta={LOG_LEVEL_KEY: level})),
                400,
                code=-32602,
                row="bad-params",
            )
            for level in NO_LEVELS
        ),
        vector(
            "what a client calls itself changes nothing",
            "M25",
            Ask(call(meta={CLIENT_INFO_KEY: {"name": "administrator", "version": "1"}})),
            200,
            result={},
        ),
        vector(
            "trace context in the head and in _meta, both malformed",
            "M23",
            Ask(
                call(meta={"traceparent": "00-zz-zz-zz", "tracestate": "=,="}),
                {"traceparent": "nonsense", "tracestate": "nonsense"},
            ),
            200,
            result={},
        ),
        vector(
            "a result names the server",
            "M18 M19",
            Ask(request("tools/list")),
            200,
            result={"_meta": {"io.modelcontextprotocol/serverInfo": {"name": "vectors", "version": "1.0.0"}}},
        ),
    ],
)
