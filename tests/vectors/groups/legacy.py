"""The revisions of 2025, in a session and without one: what of them one request can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.vectors.making import ABSENT, NOTHING, VERSION, Ask, Group, Value, request, vector

PATH: Final = "/legacy"
NEWEST, OLDEST = "2025-11-25", "2025-06-18"
SUPPORTED: Final = [VERSION, NEWEST, OLDEST]
UNKNOWN: Final = "0" * 32
_NO_MIRRORS: Final[dict[str, Value]] = {"Mcp-Method": None, "Mcp-Name": None}


def _message(method: str, params: Mapping[str, Any] = NOTHING, **others: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params), **others}


def _ask(message: Any, version: str | None = NEWEST, **headers: Value) -> Ask:
    """A request as a client of 2025 sends it."""
    own: dict[str, Value] = {"MCP-Protocol-Version": version, **_NO_MIRRORS}
    return Ask(message, own | {name.replace("_", "-"): value for name, value in headers.items()}, path=PATH)


def _bare(method: str, **headers: Value) -> Ask:
    own: dict[str, Value] = {"Content-Type": None, "Accept": "text/event-stream", "MCP-Protocol-Version": NEWEST}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Ask(None, own | named, method=method, path=PATH, raw="")


def _handshake(version: str = NEWEST) -> dict[str, Any]:
    client = {"name": "c", "version": "1"}
    return _message("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": client})


def _agreed(version: str) -> dict[str, Any]:
    offered = {"logging": {"$exactly": {}}, "tools": {"listChanged": True}, "resources": {"subscribe": True}}
    result = {"protocolVersion": version, "capabilities": offered, "resultType": ABSENT, "_meta": ABSENT}
    return {"jsonrpc": "2.0", "id": 1, "error": ABSENT, "result": result}


def _result(**members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "error": ABSENT, "result": {"resultType": ABSENT, "_meta": ABSENT, **members}}


_CALL: Final = _message("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
_OF_SESSIONS: Final[dict[str, Any]] = {
    "a request": _message("tools/list"),
    "a notification": {"jsonrpc": "2.0", "method": "notifications/initialized"},
    "a response": {"jsonrpc": "2.0", "id": "x", "result": {}},
}

GROUP = Group(
    "legacy",
    "The endpoint serves the revisions of 2025 besides, with sessions. A session's own id no vector can know.",
    [
        *(
            vector(f"a handshake for {version}", "L3 M74", _ask(_handshake(version), None), 200, body=_agreed(version))
            for version in (NEWEST, OLDEST)
        ),
        *(
            vector(f"a handshake for {version}", "L3 M74", _ask(_handshake(version), None), 200, body=_agreed(NEWEST))
            for version in ("2024-11-05", VERSION, "nonsense")
        ),
        vector(
            "a handshake under a header of 2025",
            "L3",
            _ask(_handshake("2024-11-05"), OLDEST),
            200,
            body=_agreed(OLDEST),
        ),
        vector(
            "a handshake under a bad header",
            "L3 M30",
            _ask(_handshake(), "2024-11-05"),
            400,
            code=-32022,
            data={"supported": SUPPORTED, "requested": "2024-11-05"},
            row="version-not-served",
        ),
        vector(
            "a ping without a session",
            "M77",
            _ask(_message("ping")),
            200,
            body={"$exactly": {"jsonrpc": "2.0", "id": 1, "result": {}}},
            lacks=["Mcp-Session-Id"],
        ),
        *(
            vector(f"a call without a session of {version}", "L1 M78", _ask(_CALL, version), 200, body=_result())
            for version in (NEWEST, OLDEST)
        ),
        vector(
            "a call whose headers mirror something else",
            "L6",
            _ask(_CALL, Mcp_Method="prompts/get", Mcp_Name="another"),
            200,
            body=_result(),
        ),
        vector("a list", "M78", _ask(_message("tools/list")), 200, body=_result(ttlMs=ABSENT, cacheScope=ABSENT)),
        *(
            vector(name, rules, _ask(_message(method, params)), 200, code=code)
            for name, rules, method, params, code in (
                ("an unknown method", "L2", "nonsense", {}, -32601),
                ("a modern method", "L1", "server/discover", {}, -32601),
                ("a list without a form", "L2", "tools/list", {"cursor": 5}, -32602),
                ("an unknown tool", "L2", "tools/call", {"name": "nothing"}, -32602),
                ("an unknown resource", "L2 M24", "resources/read", {"uri": "x:nothing"}, -32002),
            )
        ),
        vector("a request without a version and a session", "L4", _ask(_message("tools/list"), None), 400, code=-32602),
        vector(
            "a modern claim under a header of 2025",
            "M1 T18",
            Ask(request("tools/list"), {"MCP-Protocol-Version": NEWEST}, path=PATH),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        *(
            vector(f"{method} without a session", "M76 L11", _ask(_message(method, params)), 400)
            for method, params in (
                ("resources/subscribe", {"uri": "x:y"}),
                ("resources/unsubscribe", {"uri": "x:y"}),
                ("logging/setLevel", {"level": "info"}),
            )
        ),
        *(
            vector(f"{name} of an unknown session", "L5 M76", _ask(message, Mcp_Session_Id=UNKNOWN), 404)
            for name, message in _OF_SESSIONS.items()
        ),
        vector("a request of a session with an odd id", "L5", _ask(_message("ping"), Mcp_Session_Id="é"), 404),
        *(
            vector(f"{method} of an unknown session", "L5 M76", _bare(method, Mcp_Session_Id=UNKNOWN), 404)
            for method in ("GET", "DELETE")
        ),
        *(vector(f"{method} without a session", "M76", _bare(method), 400) for method in ("GET", "DELETE")),
        *(
            vector(
                f"{method} without a session and a version",
                "M76",
                _bare(method, MCP_Protocol_Version=None),
                405,
                headers={"Allow": "POST"},
            )
            for method in ("GET", "DELETE")
        ),
        vector(
            "a GET that welcomes no events",
            "M76",
            _bare("GET", Mcp_Session_Id=UNKNOWN, Accept="application/json"),
            406,
        ),
        *(
            vector(
                f"a notification without a session of {version}",
                "M75",
                _ask(_OF_SESSIONS["a notification"], version),
                202,
            )
            for version in (NEWEST, OLDEST)
        ),
        vector(
            "a response without a session", "M75", _ask(_OF_SESSIONS["a response"]), 400, code=-32600, identifier="x"
        ),
    ],
)
