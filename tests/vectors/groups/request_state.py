"""Group 11: what a retry brings along; and the client's capabilities."""

from __future__ import annotations

import json

from tests.vectors.making import CAPABILITIES_KEY, Ask, Group, call, request, vector

NOT_OURS = {
    "an empty one": "",
    "no Base64": "!!!!",
    "Base64 of nothing sealed": "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRob",
    "no ASCII": "état",
    "of another version": "Ag" + "A" * 60,
}

STATE = Group(
    "request-state",
    "A state that was not sealed for this very request is refused, always in the same words.",
    [
        *(
            vector(
                name,
                "M52 T11",
                Ask(request("tools/call", {"name": "echo", "arguments": {"text": "hi"}, "requestState": state})),
                400,
                code=-32602,
                row="bad-state",
            )
            for name, state in NOT_OURS.items()
        ),
        vector(
            "one under a name that does not exist",
            "T11 T12",
            Ask(request("tools/call", {"name": "nothing", "requestState": "x"})),
            400,
            code=-32602,
            row="unknown-tool",
        ),
        vector(
            "answers that nobody asked for",
            "M51",
            Ask(
                request(
                    "tools/call", {"name": "echo", "arguments": {"text": "hi"}, "inputResponses": {"unknown": None}}
                )
            ),
            200,
            result={"content": [{"type": "text", "text": "hi"}]},
        ),
        vector(
            "a list has no state, and looks at none",
            "M50",
            Ask(request("tools/list", {"requestState": "x"})),
            200,
            result={},
        ),
    ],
)

LACKING: list[tuple[dict[str, object], dict[str, object]]] = [
    ({}, {"elicitation": {"form": {}}, "sampling": {}}),
    ({"elicitation": {}}, {"sampling": {}}),
    ({"elicitation": {"form": {}}}, {"sampling": {}}),
    ({"elicitation": {"url": {}}, "sampling": {}}, {"elicitation": {"form": {}}}),
    ({"sampling": {}}, {"elicitation": {"form": {}}}),
    ({"elicitation": None, "sampling": []}, {"elicitation": {"form": {}}, "sampling": {}}),
    ({"experimental": {}, "roots": {}}, {"elicitation": {"form": {}}, "sampling": {}}),
]

CAPABILITIES = Group(
    "capabilities",
    "A client that cannot answer what a tool may ask is told what it lacks, and that alone.",
    [
        *(
            vector(
                f"{json.dumps(held)}",
                "D16 M25",
                Ask(call("ask", {}, meta={CAPABILITIES_KEY: held})),
                400,
                code=-32021,
                data={"requiredCapabilities": {"$exactly": missing}},
                row="missing-capability",
            )
            for held, missing in LACKING
        ),
        vector(
            "all that is needed",
            "D16",
            Ask(call("ask", {}, meta={CAPABILITIES_KEY: {"elicitation": {}, "sampling": {}}})),
            200,
            result={"isError": False},
        ),
        vector(
            "more than is needed",
            "D16 M25",
            Ask(
                call(
                    "ask",
                    {},
                    meta={CAPABILITIES_KEY: {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}}},
                )
            ),
            200,
            result={"isError": False},
        ),
    ],
)
