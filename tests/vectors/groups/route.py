"""Group 2: paths."""

from __future__ import annotations

from tests.vectors.making import UNREAD, Ask, Group, vector

SAME = {
    "a slash behind the path": "/mcp/",
    "a slash and a query behind the path": "/mcp/?x=1",
    "an escaped letter": "/%6dcp",
    "letters that are all escaped": "/%6D%63%70",
    "an escaped letter and a slash behind it": "/mc%70/",
}
ABSOLUTE = {
    "http://localhost/mcp": "localhost",
    "http://127.0.0.1:9/mcp/?x=1": "127.0.0.1:9",
    "HTTPS://LOCALHOST/%6Dcp": "localhost",
}
"""Absolute targets, and the Host that has to be named with them."""
OTHERS = {
    "the root": "/",
    "two slashes behind the path": "/mcp//",
    "capital letters": "/MCP",
    "escaped capital letters": "/%4DCP",
    "a path below": "/mcp/x",
    "two slashes": "//mcp",
    "a path that leads back": "/x/../mcp",
    "an escaped path that leads back": "/x/%2e%2e/mcp",
    "a dot before the path": "/./mcp",
    "an escaped slash before the path": "/%2Fmcp",
    "an escaped slash": "/mcp%2F",
    "an escaped slash and a slash": "/mcp%2F/",
    "an escape that is escaped": "/%256dcp",
    "half an escape": "/mcp%6",
    "a NUL": "/mcp%00",
    "a semicolon": "/mcp;x=1",
    "another well-known path": "/.well-known/mcp",
    "a stranger": "/other",
}

GROUP = Group(
    "route",
    "Every spelling of an endpoint's path that RFC 3986 calls equal is the path, also with one slash behind it; what "
    "no endpoint has is 404.",
    [
        vector("the endpoint's path", "T1", Ask(), 200, result={"isError": False}),
        vector("a query behind the path", "T1", Ask(path="/mcp?x=1"), 200, result={"isError": False}),
        *(vector(name, "T1 T35", Ask(path=path), 200, result={"isError": False}) for name, path in SAME.items()),
        *(
            vector(
                f"the absolute target {target}",
                "T1 T35",
                Ask(path=target, headers={"Host": host}),
                200,
                result={"isError": False},
                http=["1.1"],
            )
            for target, host in ABSOLUTE.items()
        ),
        vector(
            "an absolute target of a foreign host",
            "T35 I5",
            Ask(path="http://evil.example.com/mcp", headers={"Host": "evil.example.com"}),
            403,
            **UNREAD,
            row="forbidden",
            http=["1.1"],
        ),
        vector(
            "an absolute target without a path",
            "T35",
            Ask(path="http://localhost"),
            404,
            **UNREAD,
            row="unknown-path",
            http=["1.1"],
        ),
        *(
            vector(
                name,
                "T1 T9 T33",
                Ask(path=path),
                404,
                **UNREAD,
                row="unknown-path",
                lacks=["WWW-Authenticate"],
            )
            for name, path in OTHERS.items()
        ),
        vector(
            "a stranger that is read by GET",
            "T1",
            Ask(path="/other", method="GET", raw=""),
            404,
            **UNREAD,
            row="unknown-path",
            lacks=["Allow"],
        ),
    ],
)
