"""Group 11: `Mcp-Param-*` headers, which mirror arguments."""

from __future__ import annotations

import json
from typing import Any

from tests.vectors.making import Ask, Group, Value, base64_form, call, vector

Pair = tuple[dict[str, Value], dict[str, Any]]

AGREE: list[Pair] = [
    ({"Region": "eu"}, {"region": "eu"}),
    ({"Region": " eu\t"}, {"region": "eu"}),
    ({"Region": ""}, {"region": ""}),
    ({"Region": base64_form("WsO8cmljaA==")}, {"region": "Zürich"}),
    ({"Region": base64_form("IGV1IA==")}, {"region": " eu "}),
    ({"Region": "=?base64?eu"}, {"region": "=?base64?eu"}),
    ({"Count": "42"}, {"count": 42}),
    ({"Count": "42.0"}, {"count": 42}),
    ({"Count": "4.2e1"}, {"count": 42}),
    ({"Count": "-7"}, {"count": -7}),
    ({"Count": "9007199254740993"}, {"count": 9007199254740993}),
    ({"Dry-Run": "true"}, {"dry": True}),
    ({"Dry-Run": "false"}, {"dry": False}),
    ({"Row": "3"}, {"shelf": {"row": 3}}),
    ({}, {"region": None, "shelf": {"row": None}}),
    ({}, {"shelf": {}}),
    ({}, {}),
    ({"Other": "x"}, {}),
]
DIFFER: list[Pair] = [
    ({}, {"region": "eu"}),
    ({"Region": "eu"}, {}),
    ({"Region": "null"}, {"region": None}),
    ({"Region": "us"}, {"region": "eu"}),
    ({"Region": "EU"}, {"region": "eu"}),
    ({"Region": ["eu", "eu"]}, {"region": "eu"}),
    ({"Region": {"base64": "WsO8cmljaA=="}}, {"region": "Zürich"}),
    ({"Region": base64_form("WsO8cmljaA")}, {"region": "Zürich"}),
    ({"Row": "3"}, {"row": 3}),
    ({}, {"shelf": {"row": 3}}),
    ({"Count": "43"}, {"count": 42}),
    ({"Count": "forty"}, {"count": 42}),
    ({"Count": ""}, {"count": 0}),
    ({"Count": "1"}, {"count": True}),
    ({"Count": "4_2"}, {"count": 42}),
    ({"Count": "+42"}, {"count": 42}),
    ({"Count": "0x2a"}, {"count": 42}),
    ({"Count": "9007199254740992"}, {"count": 9007199254740993}),
    ({"Count": base64_form("2aTZog==")}, {"count": 42}),
    ({"Dry-Run": "True"}, {"dry": True}),
    ({"Dry-Run": "1"}, {"dry": True}),
    ({"Region": "['eu']"}, {"region": ["eu"]}),
]


def _ask(headers: dict[str, Value], arguments: dict[str, Any]) -> Ask:
    return Ask(call("mirror", arguments), {f"Mcp-Param-{name}": value for name, value in headers.items()})


def _name(headers: dict[str, Value], arguments: dict[str, Any]) -> str:
    return f"{json.dumps(headers, ensure_ascii=False)} for {json.dumps(arguments, ensure_ascii=False)}"


GROUP = Group(
    "custom-headers",
    "An annotated argument and its header are both there and equal, or both absent.",
    [
        *(vector(_name(*pair), "M6", _ask(*pair), 200, result={}) for pair in AGREE),
        *(vector(_name(*pair), "M5 M6", _ask(*pair), 400, code=-32020, row="header-mismatch") for pair in DIFFER),
        vector(
            "a tool without annotations takes any header of the kind",
            "M6",
            Ask(headers={"Mcp-Param-Region": "eu"}),
            200,
            result={"isError": False},
        ),
        vector(
            "names in any case",
            "M4 M6",
            Ask(call("mirror", {"region": "eu"}), {"mcp-param-REGION": "eu"}),
            200,
            result={"isError": False},
        ),
    ],
)

STRICT = Group(
    "custom-headers-strict",
    "A server that is told to be strict refuses headers that mirror nothing.",
    [
        vector(
            "a header that mirrors nothing",
            "M6",
            _ask({"Other": "x"}, {}),
            400,
            code=-31998,
            row="unknown-header",
        ),
        vector(
            "one for a tool without annotations",
            "M6",
            Ask(headers={"Mcp-Param-Region": "eu"}),
            400,
            code=-31998,
            row="unknown-header",
        ),
        vector("one that mirrors an argument", "M6", _ask({"Region": "eu"}, {"region": "eu"}), 200, result={}),
        vector(
            "one that differs is a mismatch first",
            "M6 T11",
            _ask({"Region": "us", "Other": "x"}, {"region": "eu"}),
            400,
            code=-32020,
            row="header-mismatch",
        ),
    ],
    server="strict",
)
