"""Group 8: headers that mirror the body: present, single, decoded, equal."""

from __future__ import annotations

from tests.vectors.making import VERSION, Ask, Group, Value, base64_form, call, request, vector

AGREE: dict[str, tuple[dict[str, Value], str]] = {
    "names of headers in any case": (
        {"MCP-Protocol-Version": None, "mcp-PROTOCOL-version": VERSION, "Mcp-Method": None, "MCP-METHOD": "tools/call"},
        "M4",
    ),
    "spaces and tabs around": ({"Mcp-Name": " \techo\t ", "Mcp-Method": "  tools/call"}, "M4"),
    "a name in its Base64 form": ({"Mcp-Name": base64_form("ZWNobw==")}, "M3 T3"),
}

DIFFER: dict[str, tuple[dict[str, Value], str]] = {
    "no method": ({"Mcp-Method": None}, "T3"),
    "another method": ({"Mcp-Method": "tools/list"}, "T3"),
    "the method in another case": ({"Mcp-Method": "Tools/Call"}, "T3 M4"),
    "the method twice": ({"Mcp-Method": ["tools/call", "tools/call"]}, "M5"),
    "the method in its Base64 form": ({"Mcp-Method": base64_form("dG9vbHMvY2FsbA==")}, "M3"),
    "no name": ({"Mcp-Name": None}, "T3"),
    "another name": ({"Mcp-Name": "count"}, "T3 T12"),
    "the name in another case": ({"Mcp-Name": "Echo"}, "T3 M4"),
    "the name twice": ({"Mcp-Name": ["echo", "echo"]}, "M5"),
    "an empty name": ({"Mcp-Name": ""}, "T3"),
    "a name with raw UTF-8": ({"Mcp-Name": {"base64": "ZcOpaG8="}}, "M5"),
    "Base64 without its padding": ({"Mcp-Name": base64_form("ZWNobw")}, "M3"),
    "Base64 with bits that its padding drops": ({"Mcp-Name": base64_form("ZWNobx==")}, "M3"),
    "Base64 with a space": ({"Mcp-Name": base64_form("ZWNo bw==")}, "M3"),
    "Base64 in the alphabet of URLs": ({"Mcp-Name": base64_form("-_8=")}, "M3"),
    "Base64 of no UTF-8": ({"Mcp-Name": base64_form("/w==")}, "M3"),
    "markers in capital letters": ({"Mcp-Name": "=?BASE64?ZWNobw==?="}, "M3"),
    "a marker without its end": ({"Mcp-Name": "=?base64?ZWNobw=="}, "M3"),
    "markers that overlap": ({"Mcp-Name": "=?base64?="}, "M3"),
    "another version": ({"MCP-Protocol-Version": "2025-11-25"}, "D5 T18"),
    "an empty version": ({"MCP-Protocol-Version": ""}, "M1"),
    "the version twice": ({"MCP-Protocol-Version": [VERSION, VERSION]}, "M5"),
    "the version in its Base64 form": ({"MCP-Protocol-Version": base64_form("MjAyNi0wNy0yOA==")}, "M3"),
}

GROUP = Group(
    "mirrored-headers",
    "Who reads only headers sees the same request as who reads the body.",
    [
        *(
            vector(name, rules, Ask(headers=headers), 200, result={"isError": False})
            for name, (headers, rules) in AGREE.items()
        ),
        *(
            vector(name, rules, Ask(headers=headers), 400, code=-32020, row="header-mismatch")
            for name, (headers, rules) in DIFFER.items()
        ),
        vector(
            "a name that no header can carry comes as Base64",
            "M3 T12",
            Ask(call("Bücher", {}), {"Mcp-Name": base64_form("QsO8Y2hlcg==")}),
            400,
            code=-32602,
            row="unknown-tool",
        ),
        vector(
            "a name that is no text in the body",
            "T3",
            Ask(request("tools/call", {"name": 5}), {"Mcp-Name": "5"}),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        vector(
            "a mismatch repeats nothing that was sent",
            "T16",
            Ask(call("secret-1", {}), {"Mcp-Name": "secret-2"}),
            400,
            code=-32020,
            hides=["secret"],
            row="header-mismatch",
        ),
        vector(
            "a name is compared before anybody looks whether it exists",
            "T12",
            Ask(call("nothing", {}), {"Mcp-Name": "echo"}),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        vector(
            "a prompt's name is mirrored",
            "T3",
            Ask(request("prompts/get", {"name": "a"}), {"Mcp-Name": "b"}),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        vector(
            "a resource's URI is mirrored",
            "T3",
            Ask(request("resources/read", {"uri": "test://a"}), {"Mcp-Name": "test://b"}),
            400,
            code=-32020,
            row="header-mismatch",
        ),
        vector(
            "a completion states no name, and one that is sent says nothing",
            "T3",
            Ask(request("completion/complete", {"ref": 5}), {"Mcp-Name": "whatever"}),
            400,
            code=-32602,
            row="bad-params",
        ),
        vector(
            "a list states no name",
            "T3",
            Ask(request("tools/list"), {"Mcp-Name": "whatever"}),
            200,
            result={},
        ),
        vector(
            "an endpoint that lets the body's version win",
            "D5",
            Ask(headers={"MCP-Protocol-Version": "2025-11-25"}, path="/lenient"),
            200,
            result={"isError": False},
        ),
        vector(
            "the same endpoint compares the other headers",
            "D5",
            Ask(headers={"MCP-Protocol-Version": None, "Mcp-Method": None}, path="/lenient"),
            400,
            code=-32020,
            row="header-mismatch",
        ),
    ],
)
