"""Group 6b: the era is chosen from the body first."""

from __future__ import annotations

from typing import Any

from tests.vectors.making import CAPABILITIES_KEY, UNREAD, VERSION, VERSION_KEY, Ask, Group, call, request, vector

SUPPORTED = [VERSION]


def _unclaimed() -> dict[str, Any]:
    message = call()
    del message["params"]["_meta"]
    return message


def _handshake(**params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}


GROUP = Group(
    "era",
    "A claim in `_meta` or a modern version header is modern; `initialize` without a claim is not. "
    "The server under test serves 2026-07-28 alone.",
    [
        vector(
            "a claim without the version header",
            "M1 D5",
            Ask(headers={"MCP-Protocol-Version": None}),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        vector(
            "the modern version header without a claim",
            "M1",
            Ask(_unclaimed(), {"MCP-Protocol-Version": VERSION}),
            400,
            code=-32602,
            row="bad-params",
        ),
        vector("neither claim nor version header", "M1 T5", Ask(_unclaimed()), 400, code=-32602, row="bad-params"),
        vector(
            "a version header of 2025 without a claim",
            "T18 M1",
            Ask(_unclaimed(), {"MCP-Protocol-Version": "2025-11-25"}),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": "2025-11-25"},
            row="version-not-served",
        ),
        vector(
            "a handshake",
            "T17 T18 T21 M31",
            Ask(_handshake(protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "c", "version": "1"})),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": "2025-11-25"},
            row="version-not-served",
        ),
        vector(
            "a handshake that names no version",
            "T18 M31",
            Ask(_handshake()),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": {"$absent": True}},
            row="version-not-served",
        ),
        vector(
            "a handshake with a long version is told a part of it",
            "T16 T18",
            Ask(_handshake(protocolVersion="9" * 500)),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": "9" * 64},
            row="version-not-served",
        ),
        vector(
            "a handshake with a version that is no text",
            "T16 T18",
            Ask(_handshake(protocolVersion={"secret": 1})),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": {"$absent": True}},
            hides=["secret"],
            row="version-not-served",
        ),
        vector(
            "a handshake with a modern claim",
            "T17",
            Ask(request("initialize", {"protocolVersion": VERSION})),
            404,
            code=-32601,
            data={"supported": SUPPORTED},
            row="unknown-method",
        ),
        vector(
            "a modern probe",
            "T21 D15 M29 M32",
            Ask(request("server/discover")),
            200,
            result={"supportedVersions": SUPPORTED, "cacheScope": "public"},
        ),
        vector(
            "a probe of a version that is to come",
            "T21 M30",
            Ask(request("server/discover", meta={VERSION_KEY: "2099-01-01"})),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": "2099-01-01"},
            row="version-not-served",
        ),
        vector(
            "a probe for the old event stream",
            "T21 M13",
            Ask(None, {"Accept": "text/event-stream", "Content-Type": None}, method="GET", raw=""),
            405,
            **UNREAD,
            headers={"Allow": "POST"},
            row="method",
        ),
        vector(
            "a session's id means nothing, and is not given back",
            "T8",
            Ask(headers={"Mcp-Session-Id": "s1", "Last-Event-ID": "7"}),
            200,
            result={},
            lacks=["Mcp-Session-Id", "Last-Event-ID"],
        ),
        vector(
            "what an earlier request stated is not remembered",
            "T5",
            Ask({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": {CAPABILITIES_KEY: {}}}}),
            400,
            code=-32602,
            row="bad-params",
        ),
        vector(
            "a key in the query is nobody's credential",
            "M61",
            Ask(path="/mcp?access_token=secret"),
            200,
            result={},
            hides=["secret"],
        ),
    ],
)
