"""Prompts: what their callers are told."""

from __future__ import annotations

from typing import Any

from tests.vectors.making import TEXT, Ask, Group, request, vector

GROUP = Group(
    "prompts",
    "Arguments are texts, parsed to what is declared; what is unknown, missing or unparsable is -32602.",
    [
        vector(
            "a prompt",
            "M18 M41",
            Ask(request("prompts/get", {"name": "greet", "arguments": {"name": "Ada", "times": "2"}})),
            200,
            result={"messages": [{"role": "user", "content": {"type": "text", "text": "Greet Ada 2 times."}}]},
        ),
        *(
            vector(
                name,
                "M41 T16",
                Ask(request("prompts/get", {"name": target, "arguments": arguments})),
                400,
                code=-32602,
                hides=["secret"],
                row="unknown-prompt" if target != "greet" else "bad-params",
            )
            for name, target, arguments in (
                ("an unknown prompt", "secret", {}),
                ("an argument that is missing", "greet", {"times": "2"}),
                ("an argument that does not parse", "greet", {"name": "Ada", "times": "secret"}),
                ("an argument that is not declared", "greet", {"name": "Ada", "secret": "x"}),
            )
        ),
        vector(
            "an exception in a prompt",
            "D3",
            Ask(request("prompts/get", {"name": "stumble"})),
            200,
            code=-32603,
            hides=["secret"],
            row="failed-elsewhere",
        ),
        vector(
            "the prompts, in their order",
            "M34 M45",
            Ask(request("prompts/list")),
            200,
            result={"prompts": [{"name": "greet"}, {"name": "stumble"}], "ttlMs": {"$number": True}},
        ),
        vector(
            "a cursor that is not ours",
            "L16",
            Ask(request("prompts/list", {"cursor": "x"})),
            400,
            code=-32602,
            row="bad-cursor",
        ),
    ],
    needs=("prompts",),
)


def _completion(ref: dict[str, str], argument: str, value: str) -> dict[str, Any]:
    return request("completion/complete", {"ref": ref, "argument": {"name": argument, "value": value}})


COMPLETION = Group(
    "completion",
    "Values for an argument of a prompt, or for a variable of a template.",
    [
        vector(
            "an argument of a prompt",
            "M48",
            Ask(_completion({"type": "ref/prompt", "name": "greet"}, "name", "A")),
            200,
            result={"completion": {"values": {"$exactly": ["Ada", "Alan"]}}, "ttlMs": {"$absent": True}},
        ),
        vector(
            "an argument without a completer",
            "L17",
            Ask(_completion({"type": "ref/prompt", "name": "greet"}, "times", "")),
            200,
            result={"completion": {"$exactly": {"values": [], "total": 0, "hasMore": False}}},
        ),
        *(
            vector(
                name,
                "L17 T12 T16",
                Ask(_completion(ref, argument, "")),
                400,
                code=-32602,
                hides=["secret"],
                row="unknown-prompt",
            )
            for name, ref, argument in (
                ("an unknown prompt", {"type": "ref/prompt", "name": "secret"}, "name"),
                ("an unknown argument", {"type": "ref/prompt", "name": "greet"}, "secret"),
                ("an unknown resource", {"type": "ref/resource", "uri": "secret://x"}, "x"),
                ("a resource that is no template", {"type": "ref/resource", "uri": "test://text"}, "x"),
            )
        ),
    ],
    needs=("prompts", "resources", "completions"),
)

RESOURCES = Group(
    "resources",
    "What is read under a URI; one that leads nowhere is -32602 with the URI, never empty contents.",
    [
        vector(
            "a resource",
            "M18 M45",
            Ask(request("resources/read", {"uri": "test://text"})),
            200,
            result={
                "contents": [{"uri": "test://text", "text": "A text."}],
                "ttlMs": {"$number": True},
                "cacheScope": TEXT,
            },
        ),
        vector(
            "one that a template fits",
            "M42 M45",
            Ask(request("resources/read", {"uri": "test://books/7"})),
            200,
            result={"contents": [{"uri": "test://books/7", "text": "Book 7."}]},
        ),
        *(
            vector(
                f"the URI {uri!r}",
                "M42 T16",
                Ask(request("resources/read", {"uri": uri})),
                400,
                code=-32602,
                data={"uri": uri},
                row="unknown-resource",
            )
            for uri in (
                "test://nothing",
                "TEST://text",
                "test://text/",
                "test://books/",
                "test://books/seven",
                "test://books/7/x",
                "test://books/%2e%2e",
                "test://books/%",
                "file:///etc/passwd",
                "no uri at all",
            )
        ),
        vector(
            "an exception in a resource",
            "D3",
            Ask(request("resources/read", {"uri": "test://stumble"})),
            200,
            code=-32603,
            hides=["secret"],
            row="failed-elsewhere",
        ),
        vector(
            "the resources, in their order",
            "M34 M45",
            Ask(request("resources/list")),
            200,
            result={"resources": [{"uri": "test://stumble"}, {"uri": "test://text"}], "ttlMs": {"$number": True}},
        ),
        vector(
            "the templates",
            "M34 M45",
            Ask(request("resources/templates/list")),
            200,
            result={"resourceTemplates": [{"uriTemplate": "test://books/{book}"}], "ttlMs": {"$number": True}},
        ),
        vector(
            "a cursor of another list",
            "L16",
            Ask(request("resources/list", {"cursor": "x"})),
            400,
            code=-32602,
            row="bad-cursor",
        ),
    ],
    needs=("resources",),
)
