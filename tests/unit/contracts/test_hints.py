"""URIs that are published: absolute, and in the one form of their equals, since clients' are compared as they are."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.hints import (
    BadUri,
    check_published,
    list_hint_subject,
    list_hints,
    resource_hint_subject,
    resource_hints,
    resource_key,
)


@pytest.mark.rule("S5")
@pytest.mark.parametrize(
    "uri",
    [
        "a:b",
        "library://books/1",
        "urn:isbn:1",
        "file:///a%20b/c?d=e#f",
        "https://example.com:8000/A/B",
        "x:%C3%BC",
        "a:/..b",
    ],
)
def test_a_normalized_uri_is_published(uri: str) -> None:
    check_published(uri)


@pytest.mark.rule("S5")
@pytest.mark.parametrize(
    "uri",
    [
        "",
        "books/1",
        "//host/path",
        "Library://books/1",
        "library://Books/1",
        "a:b c",
        "a:ü",
        "a:%c3%bc",
        "a:%7Eb",
        "a:%2",
        "library://books/../1",
        "library://books/./1",
        "a:b\n",
        "a:" + "b" * 2048,
    ],
)
def test_another_form_is_an_error_to_the_author(uri: str) -> None:
    with pytest.raises(BadUri):
        check_published(uri)


def test_a_hints_subject_is_heard_by_who_watches_its_uri_and_by_who_watches_all() -> None:
    key = resource_key("library://books/1")
    assert len(key) == 32
    assert resource_hint_subject("mcp", "library", key) == f"hint.resource.mcp.library.{key}"
    assert resource_hints("mcp", key) == f"hint.resource.mcp.*.{key}"
    assert resource_hints("mcp") == "hint.resource.mcp.*.*"


def test_a_hint_of_lists_names_its_pool_and_is_heard_of_all() -> None:
    assert list_hint_subject("mcp", "library") == "hint.list.mcp.library"
    assert list_hints("mcp") == "hint.list.mcp.*"
