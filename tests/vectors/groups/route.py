"""Group 2: paths."""

from __future__ import annotations

from tests.vectors.making import Ask, Group, vector

OTHERS = {
    "the root": "/",
    "a slash behind the path": "/mcp/",
    "capital letters": "/MCP",
    "a path below": "/mcp/x",
    "two slashes": "//mcp",
    "a path that leads back": "/x/../mcp",
    "an escaped letter": "/%6dcp",
    "an escaped slash": "/mcp%2F",
    "a NUL": "/mcp%00",
    "a semicolon": "/mcp;x=1",
    "another well-known path": "/.well-known/mcp",
    "a stranger": "/other",
}

GROUP = Group(
    "route",
    "Paths are exact, and what no endpoint has is 404 without a word.",
    [
        vector("the endpoint's path", "T1", Ask(), 200, result={"isError": False}),
        vector("a query behind the path", "T1", Ask(path="/mcp?x=1"), 200, result={"isError": False}),
        *(
            vector(name, "T1 T9", Ask(path=path), 404, lacks=["Content-Type", "WWW-Authenticate"])
            for name, path in OTHERS.items()
        ),
        vector("a stranger that is read by GET", "T1", Ask(path="/other", method="GET", raw=""), 404, lacks=["Allow"]),
    ],
)
