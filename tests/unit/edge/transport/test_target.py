"""Which spellings of a path are the path (T35)."""

from __future__ import annotations

import pytest

from mcpfleet.edge.transport.request_head import normal, read_path


@pytest.mark.rule("T35")
@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/mcp", "/mcp"),
        ("/mcp/", "/mcp"),
        ("/%6dcp", "/mcp"),
        ("/%6D%63%70/", "/mcp"),
        ("/a%2Db%2e%5F%7ec", "/a-b._~c"),
        ("/", "/"),
        ("/mcp//", "/mcp//"),
        ("//mcp", "//mcp"),
        ("/x/../mcp", "/x/../mcp"),
        ("/%2e%2E/mcp", "/../mcp"),
        ("/mcp%2f", "/mcp%2F"),
        ("/mcp%2F/", "/mcp%2F"),
        ("/%256dcp", "/%256dcp"),
        ("/mcp%", "/mcp%"),
        ("/mcp%6", "/mcp%6"),
        ("/mcp%zz", "/mcp%zz"),
        ("/mcp%00", "/mcp%00"),
        ("/%c3%a9", "/%C3%A9"),
        ("*", "*"),
        ("", ""),
    ],
)
def test_a_path_has_one_spelling(path: str, expected: str) -> None:
    """RFC 3986, 6.2.2; what is escaped once is unescaped once, and no dot leads anywhere."""
    assert normal(path) == expected
    assert normal(expected) == normal(normal(expected))


@pytest.mark.rule("T35")
@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("http://here/mcp", "/mcp"),
        ("HTTPS://Here:8000/%6dcp/", "/mcp"),
        ("http://here", "/"),
        ("http://here//mcp", "//mcp"),
        ("ftp://here/mcp", "ftp://here/mcp"),
        ("http:/mcp", "http:/mcp"),
        ("/http://here/mcp", "/http://here/mcp"),
    ],
)
def test_an_absolute_target_has_a_path(raw: str, path: str) -> None:
    assert read_path(raw, may_be_absolute=True) == path


@pytest.mark.rule("T35")
def test_http_2_has_no_absolute_targets() -> None:
    assert read_path("http://here/mcp", may_be_absolute=False) == "http://here/mcp"
