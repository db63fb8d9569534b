"""Group 4b, and what of group 11 a token decides: who calls, and whether the target's scopes are held."""

from __future__ import annotations

import json

from tests.vectors.groups.limits import BODY, LARGE
from tests.vectors.making import UNREAD, Ask, Group, Value, call, notification, request, vector

GOOD = "good-token"
"""Ann's, with the scope `books:read`."""
WRITER = "writer-token"
"""Bob's, with both scopes."""
OTHER = "other-token"
"""For another server."""
RESOURCE = "http://localhost"
"""The server's public URL."""
TOKENS = [
    {"token": GOOD, "subject": "ann", "audience": f"{RESOURCE}/mcp", "scopes": ["books:read"]},
    {"token": WRITER, "subject": "bob", "audience": f"{RESOURCE}/mcp", "scopes": ["books:read", "books:write"]},
    {"token": OTHER, "subject": "eve", "audience": "https://other.example.com/mcp", "scopes": ["books:read"]},
]
ISSUER = "https://issuer.example.com"
_WHERE = f'resource_metadata="{RESOURCE}/.well-known/oauth-protected-resource/mcp", scope="books:read books:write"'
MISSING = f"Bearer {_WHERE}"
REFUSED = f'Bearer error="invalid_token", {_WHERE}'

MALFORMED: dict[str, Value] = {
    "another scheme": "Basic Z29vZA==",
    "no token": "Bearer",
    "two tokens": f"Bearer {GOOD} {GOOD}",
    "a token with a comma": "Bearer a,b",
    "the header twice": [f"Bearer {GOOD}", f"Bearer {GOOD}"],
    "an empty header": "",
}
DOCUMENT = {
    "resource": f"{RESOURCE}/mcp",
    "authorization_servers": [ISSUER],
    "scopes_supported": ["books:read", "books:write"],
    "bearer_methods_supported": ["header"],
}


def _by(token: str | None, ask: Ask) -> Ask:
    ask.headers = {**ask.headers, "Authorization": f"Bearer {token}" if token else None}
    return ask


def _metadata(path: str, method: str = "GET") -> Ask:
    return Ask(None, {"Accept": None, "Content-Type": None}, method=method, path=path, raw="")


GROUP = Group(
    "authorization",
    "A server that takes three bearer tokens (groups/authorization.py says what each is worth). A credential that is "
    "missing or malformed is told before the body is read; one that is no good after what the message alone can tell, "
    f"but before what is beyond {LARGE} bytes of a body is read.",
    [
        vector("a good token", "M61", _by(GOOD, Ask()), 200, result={"isError": False}),
        vector("its scheme in any case", "M61", Ask(headers={"Authorization": f"bEARER {GOOD}"}), 200, result={}),
        vector(
            "no credential",
            "T11 M63 T22",
            Ask(),
            401,
            code=-32603,
            identifier=None,
            headers={"WWW-Authenticate": MISSING},
            row="unauthorized",
        ),
        *(
            vector(
                name,
                "T11 M61 M63",
                Ask(headers={"Authorization": value}),
                401,
                code=-32603,
                identifier=None,
                headers={"WWW-Authenticate": REFUSED},
                row="unauthorized",
            )
            for name, value in MALFORMED.items()
        ),
        *(
            vector(
                name,
                "T11 M2 M61 M63",
                _by(token, Ask(call(identifier="a"))),
                401,
                code=-32603,
                headers={"WWW-Authenticate": REFUSED},
                hides=[token],
                row="unauthorized",
            )
            for name, token in (("an unknown token", "unknown-token"), ("a token for another server", OTHER))
        ),
        vector(
            "a notification by an unknown token",
            "T13 T4",
            _by("unknown-token", Ask(notification())),
            401,
            headers={"WWW-Authenticate": REFUSED},
        ),
        vector("a notification by a good token", "T13", _by(GOOD, Ask(notification())), 202),
        vector(
            "a token in the URL",
            "M61 M63",
            _by(GOOD, Ask(path=f"/mcp?access_token={GOOD}")),
            400,
            code=-32600,
            identifier=None,
            hides=[GOOD],
            row="bad-envelope",
        ),
        vector(
            "no credential, and another media type", "T11", Ask(headers={"Content-Type": "text/plain"}), 415, **UNREAD
        ),
        vector("no credential, and no JSON", "T11", Ask(raw="{"), 401, code=-32603, row="unauthorized"),
        vector(
            "an unknown token, and no JSON",
            "T11",
            _by("unknown-token", Ask(raw="{")),
            400,
            code=-32700,
            row="not-json",
        ),
        vector(
            "an unknown token, and no JSON of the largest size that is read for anybody",
            "T11 T29",
            _by("unknown-token", Ask(raw={"repeat": ["{", LARGE]})),
            400,
            code=-32700,
            row="not-json",
        ),
        *(
            vector(
                f"an unknown token, and no JSON beyond that size: {name}",
                "T11 T29",
                _by("unknown-token", ask),
                401,
                code=-32603,
                identifier=None,
                headers={"WWW-Authenticate": REFUSED},
                row="unauthorized",
            )
            for name, ask in {
                "whole": Ask(raw={"repeat": ["{", LARGE + 1]}),
                "in pieces": Ask(raw={"repeat": ["{", LARGE + 1]}, framing="chunked"),
                "in pieces, beyond every size": Ask(raw={"repeat": ["{", 2 * BODY]}, framing="chunked"),
                "that never comes": Ask(raw="{", headers={"Content-Length": str(LARGE + 1)}, framing="as stated"),
                "of a notification": Ask(notification(), padding=LARGE),
            }.items()
        ),
        vector(
            "an unknown token, and a length over the limit",
            "T11 T29",
            _by("unknown-token", Ask(raw="{", headers={"Content-Length": str(BODY + 1)}, framing="as stated")),
            413,
            **UNREAD,
            row="too-large",
        ),
        vector(
            "no token, and no JSON beyond the size that is read for anybody",
            "T11 T29",
            Ask(raw={"repeat": ["{", LARGE + 1]}),
            401,
            code=-32603,
            identifier=None,
            headers={"WWW-Authenticate": MISSING},
            row="unauthorized",
        ),
        vector(
            "a good token, and no JSON beyond that size",
            "T11 T29",
            _by(GOOD, Ask(raw={"repeat": ["{", LARGE + 1]})),
            400,
            code=-32700,
            row="not-json",
        ),
        vector(
            "a good token, and a request beyond that size",
            "T29",
            _by(GOOD, Ask(call(arguments={"text": "a" * LARGE}))),
            200,
            result={"isError": False},
        ),
        vector(
            "an unknown token, and a bad structure",
            "T11",
            _by("unknown-token", Ask(call(arguments=[]))),
            400,
            code=-32602,
            row="bad-params",
        ),
        vector(
            "an unknown token, and an unknown tool",
            "T11 T12",
            _by("unknown-token", Ask(call("nothing", {}))),
            401,
            code=-32603,
            row="unauthorized",
        ),
        vector(
            "discovery by an unknown token",
            "D15 M32",
            _by("unknown-token", Ask(request("server/discover"))),
            200,
            result={},
        ),
        vector(
            "discovery without a token",
            "D15",
            Ask(request("server/discover")),
            401,
            code=-32603,
            identifier=None,
            row="unauthorized",
        ),
        vector(
            "a scope that is missing",
            "D10 M63",
            _by(GOOD, Ask(call("lock", {}))),
            403,
            code=-32603,
            headers={
                "WWW-Authenticate": 'Bearer error="insufficient_scope", '
                f'resource_metadata="{RESOURCE}/.well-known/oauth-protected-resource/mcp", '
                'scope="books:read books:write"'
            },
            row="insufficient-scope",
        ),
        vector("all scopes", "D10 M63", _by(WRITER, Ask(call("lock", {}))), 200, result={"isError": False}),
        vector(
            "a list for one who is named",
            "M46",
            _by(GOOD, Ask(request("tools/list"))),
            200,
            result={"cacheScope": "private", "tools": {"$contains": {"name": "lock"}}},
        ),
        *(
            vector(
                f"GET {path}",
                "T1 M62",
                _metadata(path),
                200,
                body={"$exactly": DOCUMENT},
                headers={"Access-Control-Allow-Origin": "*"},
            )
            for path in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource")
        ),
        *(
            vector(f"GET {path}", "T35", _metadata(path), 200, body={"$exactly": DOCUMENT})
            for path in (
                "/.well-known/oauth-protected-resource/mcp/",
                "/.well-known/oauth-protected-resource/",
                "/%2Ewell%2dknown/oauth-protected-resource/%6Dcp",
            )
        ),
        vector(
            "the document by another method",
            "T1",
            _metadata("/.well-known/oauth-protected-resource/mcp", "PUT"),
            405,
            **UNREAD,
            headers={"Allow": "GET, HEAD, OPTIONS"},
        ),
        vector(
            "the document of a stranger",
            "T1",
            _metadata("/.well-known/oauth-protected-resource/other"),
            404,
            **UNREAD,
        ),
    ],
    server="guarded",
)

SETTINGS = {
    "MCPFLEET_AUTHORIZATION": "static",
    "MCPFLEET_TOKENS": json.dumps({"tokens": TOKENS}),
    "MCPFLEET_PUBLIC_URL": RESOURCE,
    "MCPFLEET_AUTHORIZATION_SERVERS": ISSUER,
}
