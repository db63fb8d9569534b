"""Group 1: how large a head and a body may be, and how long they may take."""

from __future__ import annotations

import json

from tests.vectors.making import UNREAD, Ask, Group, call, request, vector

BODY = 100_000
"""The largest body that the server under test takes."""
HEAD = 65_536
"""The largest head."""
LARGE = 50_000
"""A body that is larger needs a good token before it is read."""
VALUES = 25_000
"""The most values and keys of a body."""

_PADDED = len(Ask().body)

FULL: dict[str, tuple[str, int, int]] = {
    "lists": ("[]", VALUES // 2 - 20, VALUES // 2),
    "objects": ("{}", VALUES // 2 - 20, VALUES // 2),
    "texts": ('""', VALUES - 40, VALUES),
    "texts and numbers": (f'"","",{"1" * 38}', VALUES // 13, VALUES // 12),
}
"""A list's item, the number that passes, and the number that does not; four characters of numbers are a value."""
TEXTS: dict[str, str] = {
    "commas": ",",
    "brackets": "[{",
    "brackets behind escaped quotes": r"\"[",
    "brackets behind escaped backslashes": r"\\[",
}


def _said(each: str) -> Ask:
    """A call whose text would be many values, were it none."""
    before, _, after = json.dumps(call()).partition("hi")
    return Ask(call(), raw={"join": [before, {"repeat": [each, VALUES + 1]}, after]})


def _beside(each: str, times: int) -> Ask:
    """A call with a list among what nobody reads."""
    before, _, after = json.dumps(call(meta={"com.example/any": ["here"]})).partition('"here"')
    return Ask(call(), raw={"join": [before, {"repeat": [f"{each},", times - 1]}, each, after]})


GROUP = Group(
    "limits",
    f"Sizes and times. The server takes bodies of {BODY} bytes with {VALUES} values and heads of {HEAD}, and waits 1 s "
    "for a body. The limit of the body is met while it is read, so faults of the head are told first.",
    [
        vector("a body of the largest size", "T11", Ask(padding=BODY - _PADDED), 200, result={"isError": False}),
        vector(
            "a body over the limit",
            "T11 M13",
            Ask(padding=BODY - _PADDED + 1),
            413,
            **UNREAD,
            row="too-large",
        ),
        vector(
            "a body over the limit, in pieces",
            "T11 M13",
            Ask(padding=BODY, framing="chunked"),
            413,
            **UNREAD,
            row="too-large",
        ),
        vector(
            "a length over the limit, of a body that never comes",
            "T11 M13",
            Ask(raw={"repeat": ["x", 10]}, headers={"Content-Length": str(BODY + 1)}, framing="as stated"),
            413,
            **UNREAD,
            row="too-large",
        ),
        vector(
            "a body that does not come to its end",
            "T11",
            Ask(raw='{"jsonrpc"', framing="unfinished"),
            408,
            **UNREAD,
        ),
        vector(
            "a head over the limit",
            "T9 T11 M13",
            Ask(headers={"X-Long": {"repeat": ["y", 2 * HEAD]}}),
            431,
            row="head-too-large",
            http=["1.1"],
        ),
        vector(
            "a long header that nobody looks at",
            "T11",
            Ask(headers={"X-Long": {"repeat": ["y", 8_000]}}),
            200,
            result={"isError": False},
        ),
        vector("a body in pieces", "T11", Ask(framing="chunked"), 200, result={"isError": False}),
        vector(
            "an id of a thousand characters",
            "M2",
            Ask(request("tools/list", identifier="i" * 1_000)),
            200,
            result={},
        ),
        vector(
            "arguments nested as deeply as a body may be",
            "T11 D18",
            Ask(raw={"join": [{"repeat": ["[", 128]}, {"repeat": ["]", 128]}]}),
            400,
            code=-32600,
            row="bad-envelope",
        ),
        vector(
            "a body nested too deeply",
            "T11 D18",
            Ask(raw={"join": [{"repeat": ["[", 130]}, {"repeat": ["]", 130]}]}),
            400,
            code=-32700,
            row="not-json",
        ),
        vector(
            "a body nested beyond every stack",
            "T11 D18",
            Ask(raw={"join": [{"repeat": ["[", 40_000]}, {"repeat": ["]", 40_000]}]}),
            400,
            code=-32700,
            row="not-json",
        ),
        *(
            vector(f"nearly more {name} than a body may have", "T31", _beside(each, most), 200, result={}, identifier=1)
            for name, (each, most, _) in FULL.items()
        ),
        *(
            vector(
                f"more {name} than a body may have",
                "T11 T31",
                _beside(each, over),
                400,
                code=-32600,
                row="bad-envelope",
            )
            for name, (each, _, over) in FULL.items()
        ),
        *(
            vector(f"a text of {name} is one value", "T31", _said(each), 200, result={}, identifier=1)
            for name, each in TEXTS.items()
        ),
        vector(
            "more values than a body may have, of what is no JSON",
            "T11 T31",
            Ask(raw={"join": [{"repeat": ["[],", VALUES]}, "}"]}),
            400,
            code=-32600,
            row="bad-envelope",
        ),
        vector(
            "a number of more digits than anybody computes",
            "T11 D18",
            Ask(raw={"repeat": ["1", 90_000]}),
            400,
            code=-32700,
            row="not-json",
        ),
        vector(
            "a name of a tool that no tool may have",
            "T11 T16",
            Ask(call("n" * 5_000, {})),
            400,
            code=-32602,
            row="unknown-tool",
            hides=["nnnn"],
        ),
    ],
)
