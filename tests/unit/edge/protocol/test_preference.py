"""The language preference that a request's exchange keeps."""

from __future__ import annotations

import pytest

from mcpfleet.edge.protocol.validation import read_message
from mcpfleet.wire.language import ACCEPT_LANGUAGE_META_KEY, LONGEST_PREFERENCE
from tests.unit.edge.asgi import Exchange, Post, call


@pytest.mark.rule("X31")
@pytest.mark.parametrize(("length", "is_kept"), [(LONGEST_PREFERENCE, True), (LONGEST_PREFERENCE + 1, False)])
@pytest.mark.parametrize("is_header", [True, False])
def test_a_preference_over_the_bound_is_not_kept(length: int, *, is_kept: bool, is_header: bool) -> None:
    """A stream would keep it for as long as it lasts, and a cache beyond that; its client is told the language."""
    stated = "x" * length
    message = call(meta={} if is_header else {ACCEPT_LANGUAGE_META_KEY: stated})
    post = Post(message, headers={"accept-language": stated if is_header else None})
    exchange = Exchange(post).client()
    exchange.message = read_message(post.body, message)
    exchange.read_preference(header_counts=True)
    assert exchange.preference == (stated if is_kept else None)
    assert exchange.tells_language is not is_header
