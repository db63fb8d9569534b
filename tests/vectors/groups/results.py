"""Groups 14 to 17: what a call ends with."""

from __future__ import annotations

from typing import Any

from tests.vectors.making import TEXT, Ask, Group, call, vector

_FAILED: dict[str, Any] = {"isError": True, "content": [{"type": "text", "text": TEXT}]}

GROUP = Group(
    "results",
    "A model reads what went wrong in a tool; the client's code reads the rest.",
    [
        vector(
            "text",
            "T7 M10 M18 M19 M22 P5",
            Ask(),
            200,
            result={
                "isError": False,
                "content": [{"type": "text", "text": "hi"}],
                "_meta": {
                    "$exactly": {"io.modelcontextprotocol/serverInfo": {"name": "vectors", "version": "1.0.0"}},
                },
                "ttlMs": {"$absent": True},
                "cacheScope": {"$absent": True},
            },
            headers={"Content-Type": "application/json"},
            lacks=["X-Accel-Buffering", "Mcp-Session-Id", "Server"],
        ),
        vector(
            "nothing",
            "M38",
            Ask(call("null", {})),
            200,
            result={"isError": False, "content": []},
        ),
        vector("arguments that fail the schema", "D3 T16", Ask(call(arguments={"text": 5})), 200, result=_FAILED),
        vector(
            "an argument that is not declared",
            "D3 T16",
            Ask(call(arguments={"text": "hi", "secret-1": "secret-2"})),
            200,
            result=_FAILED,
            hides=["secret"],
            row="tool-failed",
        ),
        vector(
            "an exception, of which nobody reads anything",
            "D3",
            Ask(call("fail", {"why": "secret"})),
            200,
            result=_FAILED,
            hides=["secret", "Traceback"],
            row="tool-failed",
        ),
        vector(
            "a refusal that the model should read",
            "D3",
            Ask(call("refuse", {"why": "closed on Sundays"})),
            200,
            result={"isError": True, "content": [{"type": "text", "text": "closed on Sundays"}]},
            row="tool-failed",
        ),
        vector(
            "a deadline that passed",
            "D3 M59",
            Ask(call("late", {})),
            200,
            result=_FAILED,
            row="tool-failed",
        ),
        vector(
            "an error that the application chose",
            "M24",
            Ask(call("decide", {"code": 7})),
            400,
            code=7,
            data={"floor": 3},
            row="authored-error",
        ),
        vector(
            "a result that breaks its own schema",
            "M39",
            Ask(call("break", {})),
            200,
            code=-32603,
            row="broken-contract",
        ),
    ],
)
