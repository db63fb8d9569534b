"""`mcpfleet list` and `mcpfleet call`: what people see of a server's lists and of a result."""

from __future__ import annotations

import pytest
from mcp_types import CallToolResult, ImageContent, TextContent

from mcpfleet.cli.call import show_result
from mcpfleet.cli.listing import lines


def test_each_kind_is_shown_with_the_first_line_of_what_is_said() -> None:
    shown = lines({"tools": [("add", "Add two integers.\nAt once."), ("order", "")], "prompts": []})
    assert shown == ["tools:", "  add    Add two integers.", "  order"]
    assert lines({"tools": []}) == ["the endpoint offers nothing"]


def test_a_result_is_shown_with_its_blocks_and_its_text_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = CallToolResult(
        structured_content={"total": 3},
        content=[
            TextContent(text='{"total":3}'),
            TextContent(text="Three in all."),
            ImageContent(data="AAAA", mime_type="image/png"),
        ],
    )
    assert show_result(result, as_json=False) == 0
    printed = capsys.readouterr().out
    assert printed.count("total") == 1
    assert "Three in all." in printed
    assert "[image of type image/png, 3 bytes]" in printed
