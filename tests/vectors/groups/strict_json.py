"""Group 5: strict JSON."""

from __future__ import annotations

import base64
import json

from tests.vectors.making import Ask, Group, Text, call, request, vector


def _bytes(raw: bytes) -> Text:
    return {"base64": base64.b64encode(raw).decode()}


_LIST = json.dumps(request("tools/list"))

NO_JSON: dict[str, Text] = {
    "nothing": "",
    "spaces": "  \r\n",
    "unfinished": "{",
    "two texts": f"{_LIST} {{}}",
    "a trailing comma": _LIST[:-1] + ",}",
    "single quotes": _LIST.replace('"', "'"),
    "a comment": f"{_LIST} // why",
    "a misspelled word": "nul",
    "NaN": _LIST[:-1] + ', "x": NaN}',
    "Infinity": _LIST[:-1] + ', "x": -Infinity}',
    "a leading zero": _LIST.replace('"id": 1', '"id": 01'),
    "a plus": _LIST.replace('"id": 1', '"id": +1'),
    "no integer part": _LIST.replace('"id": 1', '"id": .5'),
    "no fraction": _LIST.replace('"id": 1', '"id": 1.'),
    "a hexadecimal number": _LIST.replace('"id": 1', '"id": 0x1'),
    "a number beyond every double": _LIST.replace('"id": 1', '"id": 1e400'),
    "a raw control character": _LIST.replace("tools/list", "tools/list\u0001"),
    "a raw line end in a string": _LIST.replace("tools/list", "tools/\nlist"),
    "an unknown escape": _LIST.replace("tools/list", r"tools\/\list"),
    "a NUL behind the text": f"{_LIST}\0",
    "no UTF-8": _bytes(b'{"jsonrpc":"2.0","id":"\xff"}'),
    "a surrogate as UTF-8": _bytes(b'{"jsonrpc":"2.0","id":"\xed\xa0\x80"}'),
    "an overlong form of UTF-8": _bytes(b'{"jsonrpc":"2.0","id":"\xc0\xaf"}'),
    "a byte order mark": _bytes(b"\xef\xbb\xbf" + _LIST.encode()),
    "UTF-16": _bytes(_LIST.encode("utf-16")),
}

TWICE: dict[str, Text] = {
    "the id": _LIST.replace('"id": 1', '"id": 1, "id": 2'),
    "the same value": _LIST.replace('"id": 1', '"id": 1, "id": 1'),
    "an escaped key": _LIST.replace('"id": 1', r'"id": 1, "\u0069d": 2'),
    "an argument": json.dumps(call()).replace('"text": "hi"', '"text": "hi", "text": "ho"'),
    "deep inside": _LIST[:-1] + ', "x": [{"a": {"b": 1, "b": 2}}]}',
}

SURROGATES: dict[str, str] = {
    "in an argument": json.dumps(call(arguments={"text": "\ud800"})),
    "in a key": json.dumps(call(arguments={"\udc00": 1})),
    "the wrong way round": json.dumps(call(arguments={"text": "\ude00\ud83d"})),
    "in _meta": json.dumps(request("tools/list", meta={"com.example/x": "\ud800"})),
}

GROUP = Group(
    "strict-json",
    "A body is one JSON text: no key twice, no number that is none, no lone surrogate.",
    [
        *(
            vector(f"no JSON: {name}", "D18", Ask(raw=raw), 400, code=-32700, row="not-json")
            for name, raw in NO_JSON.items()
            if name != "nothing"
        ),
        vector(
            "no JSON: nothing",
            "D18",
            Ask(raw="", headers={"Content-Length": "0"}),
            400,
            code=-32700,
            row="not-json",
        ),
        *(
            vector(f"a key twice: {name}", "D18", Ask(raw=raw), 400, code=-32600, row="bad-envelope")
            for name, raw in TWICE.items()
        ),
        *(
            vector(
                f"a lone surrogate {name}",
                "D18",
                Ask(json.loads(raw), {"Mcp-Name": "echo"} if "tools/call" in raw else {}),
                400,
                code=-32602,
            )
            for name, raw in SURROGATES.items()
        ),
        vector(
            "a lone surrogate in the id, which no answer can repeat",
            "D18 M2",
            Ask(request("tools/list", identifier="\ud800")),
            400,
            code=-32600,
            identifier=None,
            row="bad-envelope",
        ),
        vector(
            "a pair of surrogates is one character",
            "D18",
            Ask(call(arguments={"text": "\U0001f600"})),
            200,
            result={"content": [{"type": "text", "text": "\U0001f600"}]},
        ),
        vector(
            "line separators that JSON allows",
            "D18",
            Ask(call(arguments={"text": "\u2028\u2029\u0085"})),
            200,
            result={"content": [{"type": "text", "text": "\u2028\u2029\u0085"}]},
        ),
        vector(
            "a NUL in a string is read, and left out of what a model reads",
            "D18 M40",
            Ask(call(arguments={"text": "a\0b"})),
            200,
            result={"content": [{"type": "text", "text": "ab"}]},
        ),
        vector(
            "an integer that no double holds",
            "D18",
            Ask(call("count", {"number": 9007199254740993})),
            200,
            result={"structuredContent": 9007199254740993},
        ),
        vector(
            "white space around and between",
            "D18",
            Ask(raw=f" \t\r\n{_LIST} \n", headers={"Mcp-Method": "tools/list", "Mcp-Name": None}),
            200,
            result={},
            identifier=1,
        ),
    ],
)
