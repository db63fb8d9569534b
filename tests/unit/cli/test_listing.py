"""`mcpfleet list`: what people see of a server's lists."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.cli.listing import find, in_full, lines
from mcpfleet.cli.typed_arguments import WrongArguments

ADD = {
    "name": "add",
    "title": "Adding",
    "description": "Add two integers.\nAt once.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "right": {"type": "integer", "default": 1, "minimum": 0},
            "left": {"type": "integer", "description": "The first."},
        },
        "required": ["left"],
    },
    "outputSchema": {"type": "integer"},
    "annotations": {"readOnlyHint": True},
}
LISTED: dict[str, list[dict[str, Any]]] = {
    "tools": [ADD],
    "resources": [{"uri": "shop://terms", "name": "terms", "description": "The terms."}],
    "resourceTemplates": [{"uriTemplate": "shop://items/{item}", "name": "item"}],
    "prompts": [{"name": "review", "arguments": [{"name": "title", "required": True, "description": "Its title."}]}],
}


def test_each_kind_is_shown_with_signatures_and_the_first_line_of_what_is_said() -> None:
    assert lines(LISTED) == [
        "tools:",
        "  add(left: int, right: int = 1)",
        "      Add two integers.",
        "resources:",
        "  shop://terms",
        "      The terms.",
        "templates:",
        "  shop://items/{item}",
        "prompts:",
        "  review(title)",
    ]
    assert lines({"tools": []}) == ["the endpoint offers nothing"]


def test_a_tool_in_full_tells_each_argument_and_its_result() -> None:
    shown = "\n".join(in_full("tools", ADD))
    for line in (
        "add(left: int, right: int = 1)",
        "Adding",
        "At once.",
        "  left: int, required\n      The first.\n  right: int, default 1, at least 0",
        "  readOnlyHint: true",
        'result:\n  {\n    "type": "integer"',
    ):
        assert line in shown


def test_a_prompt_in_full_tells_its_arguments() -> None:
    assert "  title, required\n      Its title." in "\n".join(in_full("prompts", LISTED["prompts"][0]))


def test_an_entry_is_found_by_its_name_or_uri_and_the_nearest_is_proposed() -> None:
    assert find(LISTED, "shop://terms")[0] == find(LISTED, "terms")[0] == "resources"
    with pytest.raises(WrongArguments, match="lists no 'adds'; did you mean add"):
        find(LISTED, "adds")
