"""The revisions of 2025, in a session and without one: what of them one request can show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.vectors.making import ABSENT, NOTHING, UNREAD, VERSION, Ask, Group, Value, request, vector

PATH: Final = "/legacy"
NEWEST, OLDEST = "2025-11-25", "2025-06-18"
SUPPORTED: Final = [VERSION, NEWEST, OLDEST]
UNKNOWN: Final = "0" * 32
REPEATED: Final[dict[str, Value]] = {
    "in two lines": [NEWEST, NEWEST],
    "twice in a line": f"{NEWEST}, {NEWEST}",
    "twice in a line without a space": f"{NEWEST},{NEWEST}",
    "twice in a line and once more": [f"{NEWEST}, {NEWEST}", NEWEST],
}
"""One version, stated more than once."""
VERSION_HEADERS: Final[dict[str, Value]] = {
    "the header of another revision": NEWEST,
    "a header that is not served": "2024-11-05",
    "the modern header": VERSION,
    "the header of a revision that is to come": "2099-01-01",
    "a header of nonsense": "nonsense",
    "an empty header": "",
    "a header of no ASCII": "é",
    "two headers": [OLDEST, NEWEST],
    "one header twice": f"{NEWEST}, {NEWEST}",
}
"""Values that the header of a handshake may have: it is not judged by them."""
_NO_MIRRORS: Final[dict[str, Value]] = {"Mcp-Method": None, "Mcp-Name": None}


def _message(method: str, params: Mapping[str, Any] = NOTHING, **others: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": dict(params), **others}


def _ask(message: Any, version: Value | list[str] = NEWEST, **headers: Value) -> Ask:
    """A request as a client of 2025 sends it."""
    stated: Value = list(version) if isinstance(version, list) else version
    own: dict[str, Value] = {"MCP-Protocol-Version": stated, **_NO_MIRRORS}
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


_COMPLETE: Final = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}}
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
        *(
            vector(f"a handshake under {name}", "L20", _ask(_handshake(OLDEST), header), 200, body=_agreed(OLDEST))
            for name, header in VERSION_HEADERS.items()
        ),
        *(
            vector(
                f"a handshake that asks for an older version under {name}",
                "L3 L20",
                _ask(_handshake("2024-11-05"), header),
                200,
                body=_agreed(agreed),
            )
            for name, header, agreed in (
                ("a newer header", "2099-01-01", NEWEST),
                ("two headers", [OLDEST, NEWEST], NEWEST),
                ("one header twice", [OLDEST, OLDEST], OLDEST),
            )
        ),
        *(
            vector(
                f"a request under the version {name}",
                "L21",
                _ask(_message("ping"), header),
                200,
                body={"$exactly": {"jsonrpc": "2.0", "id": 1, "result": {}}},
            )
            for name, header in REPEATED.items()
        ),
        *(
            vector(
                f"a notification under the version {name}",
                "L21",
                _ask(_OF_SESSIONS["a notification"], header),
                202,
            )
            for name, header in REPEATED.items()
        ),
        *(
            vector(
                f"{method} without a session under the version twice",
                "L21 M76",
                _bare(method, MCP_Protocol_Version=[NEWEST, NEWEST]),
                400,
                **UNREAD,
                row="session-missing",
            )
            for method in ("GET", "DELETE")
        ),
        *(
            vector(
                f"a request under {name}",
                "L21 M30",
                _ask(_message("ping"), header),
                400,
                code=code,
                row="version-not-served" if code == -32022 else "header-mismatch",
            )
            for name, header, code in (
                ("a version that is not served", "2024-11-05", -32022),
                ("a version that is to come", "2099-01-01", -32022),
                ("no version at all", "", -32022),
                ("two versions", [NEWEST, OLDEST], -32020),
                ("two versions in one line", f"{NEWEST}, {OLDEST}", -32020),
                ("a version of no ASCII", "é", -32020),
            )
        ),
        *(
            vector(f"a notification under {name}", "L21 T14", _ask(_OF_SESSIONS["a notification"], header), 400)
            for name, header in (
                ("a version that is not served", "2024-11-05"),
                ("two versions", [NEWEST, OLDEST]),
            )
        ),
        *(
            vector(
                f"{method} under two versions",
                "L21",
                _bare(method, MCP_Protocol_Version=[NEWEST, OLDEST]),
                400,
                code=-32020,
                identifier=None,
            )
            for method in ("GET", "DELETE")
        ),
        *(
            vector(f"null instead of {name}", "L22", _ask({**_message(method), "params": params}), 200, body=_result())
            for name, method, params in (
                ("parameters", "tools/list", None),
                ("parameters of a ping", "ping", None),
                ("_meta", "tools/list", {"_meta": None}),
                ("a cursor", "tools/list", {"cursor": None}),
                ("arguments", "tools/call", {"name": "null", "arguments": None}),
                ("a progress token", "tools/list", {"_meta": {"progressToken": None}}),
                ("a context", "completion/complete", {**_COMPLETE, "context": None}),
                ("arguments of a context", "completion/complete", {**_COMPLETE, "context": {"arguments": None}}),
            )
        ),
        vector(
            "a handshake for a version that is no text",
            "L3",
            _ask(_message("initialize", {"protocolVersion": 5, "capabilities": {}}), None),
            400,
            body={"id": 1, "error": {"code": -32602, "message": "Invalid params: protocolVersion must be a string"}},
            row="bad-params",
        ),
        vector(
            "null instead of what a client says of itself",
            "L22",
            _ask(_message("initialize", {"protocolVersion": NEWEST, "capabilities": None, "clientInfo": None}), None),
            200,
            body=_agreed(NEWEST),
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
            vector(
                f"{method} without a session",
                "M76 L11",
                _ask(_message(method, params)),
                400,
                code=-32600,
                row="session-missing",
            )
            for method, params in (
                ("resources/subscribe", {"uri": "x:y"}),
                ("resources/unsubscribe", {"uri": "x:y"}),
                ("logging/setLevel", {"level": "info"}),
            )
        ),
        *(
            vector(
                f"{name} of an unknown session",
                "L5 M76 T33",
                _ask(message, Mcp_Session_Id=UNKNOWN),
                404,
                **UNREAD,
                row="session-unknown",
            )
            for name, message in _OF_SESSIONS.items()
            if name != "a notification"
        ),
        vector(
            "a notification of an unknown session",
            "L5 M76 T4",
            _ask(_OF_SESSIONS["a notification"], Mcp_Session_Id=UNKNOWN),
            404,
        ),
        vector(
            "a request of a session with an odd id",
            "L5",
            _ask(_message("ping"), Mcp_Session_Id="é"),
            404,
            **UNREAD,
            row="session-unknown",
        ),
        *(
            vector(
                f"{method} of an unknown session",
                "L5 M76 T33",
                _bare(method, Mcp_Session_Id=UNKNOWN),
                404,
                **UNREAD,
                row="session-unknown",
            )
            for method in ("GET", "DELETE")
        ),
        *(
            vector(
                f"{method} without a session",
                "M76",
                _bare(method),
                400,
                **UNREAD,
                row="session-missing",
            )
            for method in ("GET", "DELETE")
        ),
        *(
            vector(
                f"{method} without a session and a version",
                "M76",
                _bare(method, MCP_Protocol_Version=None),
                405,
                **UNREAD,
                headers={"Allow": "POST"},
            )
            for method in ("GET", "DELETE")
        ),
        vector(
            "a GET that welcomes no events",
            "M76",
            _bare("GET", Mcp_Session_Id=UNKNOWN, Accept="application/json"),
            406,
            **UNREAD,
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
        *(
            vector(
                f"{name} without a session",
                "M75 T36",
                _ask({"jsonrpc": "2.0", **members}),
                400,
                **UNREAD,
            )
            for name, members in (
                ("a response", {"id": "x", "result": {}}),
                ("an error", {"id": 1, "error": {"code": -1, "message": "no"}}),
            )
        ),
    ],
)
