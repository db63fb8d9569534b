"""Lists, their cursors, and discovery."""

from __future__ import annotations

from tests.vectors.making import VERSION, Ask, Group, request, vector

BAD_CURSORS = {
    "the empty text": "",
    "a number's text": "2",
    "a name": "echo",
    "no Base64": "!!!!",
    "Base64 of nothing sealed": "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRob",
    "no ASCII": "état",
    "one that is too long": "A" * 5_000,
}

TOOLS = ("ask", "break", "count", "decide", "echo", "fail", "late", "lock", "mirror", "null", "refuse")

GROUP = Group(
    "lists-and-cursors",
    "Lists are in the order of their names, and say who may keep them for how long; a cursor that is not ours is "
    "refused without a word on why.",
    [
        vector(
            "the tools, in their order",
            "M34 M35 M45 M46",
            Ask(request("tools/list")),
            200,
            result={
                "tools": [{"name": name} for name in TOOLS],
                "ttlMs": {"$number": True},
                "cacheScope": "public",
                "nextCursor": {"$absent": True},
            },
        ),
        vector(
            "a tool without parameters takes only none",
            "M37",
            Ask(request("tools/list")),
            200,
            result={
                "tools": {
                    "$contains": {
                        "name": "null",
                        "inputSchema": {"$exactly": {"type": "object", "additionalProperties": False}},
                    }
                }
            },
        ),
        *(
            vector(
                f"the cursor: {name}",
                "L16 M47",
                Ask(request("tools/list", {"cursor": cursor})),
                400,
                code=-32602,
                data={"$absent": True},
                row="bad-cursor",
            )
            for name, cursor in BAD_CURSORS.items()
        ),
        vector(
            "discovery",
            "M29 M32 M33 M45",
            Ask(request("server/discover")),
            200,
            result={
                "supportedVersions": [VERSION],
                "capabilities": {"tools": {}},
                "ttlMs": {"$number": True},
                "cacheScope": "public",
                "instructions": "Call what you like.",
            },
        ),
        vector(
            "discovery looks at no parameters",
            "D15 M32",
            Ask(request("server/discover", {"cursor": 5, "name": 7})),
            200,
            result={},
        ),
    ],
)
