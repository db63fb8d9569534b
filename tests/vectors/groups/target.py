"""Group 11: the target exists for the caller."""

from __future__ import annotations

from tests.vectors.making import Ask, Group, base64_form, call, vector

GROUP = Group(
    "target",
    "A target that does not exist and one that is hidden are one answer, which repeats nothing of the request.",
    [
        *(
            vector(
                f"the tool {name!r}",
                "T12 T16",
                Ask(call(name, {})),
                400,
                code=-32602,
                data={"$absent": True},
                row="unknown-tool",
            )
            for name in ("nothing", "Echo", "ECHO", "echo2", "ech", "")
        ),
        vector(
            "an unknown tool's name and arguments are repeated nowhere",
            "T16",
            Ask(call("secret-1", {"secret-2": "secret-3"}, meta={"com.example/secret-4": "secret-5"})),
            400,
            code=-32602,
            hides=["secret"],
            row="unknown-tool",
        ),
        vector(
            "an unknown tool whose name no header can carry",
            "T16",
            Ask(call("secret\u2028", {}), {"Mcp-Name": base64_form("c2VjcmV04oCo")}),
            400,
            code=-32602,
            hides=["secret"],
            row="unknown-tool",
        ),
    ],
)
