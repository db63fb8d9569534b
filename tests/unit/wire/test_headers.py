"""A request's headers, by their names."""

from __future__ import annotations

import pytest

from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"plain", "plain"), (b" \t around \t", "around"), (b"", ""), (b"a\tb c", "a\tb c")],
)
def test_m4_a_header_is_read_without_the_spaces_and_tabs_around_it(value: bytes, text: str) -> None:
    assert Headers([(b"accept", b"x"), (b"mcp-name", value)]).single(b"mcp-name") == text


def test_a_header_that_is_absent_is_none() -> None:
    assert Headers([(b"accept", b"x")]).single(b"mcp-name") is None


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([b"a", b"a"], id="repeated"),
        pytest.param([b"a", b""], id="repeated and empty"),
        pytest.param([b"caf\xc3\xa9"], id="raw UTF-8"),
        pytest.param([b"a\x7f"], id="DEL"),
        pytest.param([b"a\x00"], id="NUL"),
        pytest.param([b"\xa0a"], id="a space of another alphabet"),
    ],
)
def test_m5_a_header_that_is_repeated_or_has_invalid_characters_is_a_mismatch(values: list[bytes]) -> None:
    with pytest.raises(Rejection) as raised:
        Headers([(b"mcp-name", value) for value in values]).single(b"mcp-name")
    assert (raised.value.status, raised.value.code) == (400, -32020)


def test_every_value_of_a_header_is_kept_in_its_order() -> None:
    headers = Headers([(b"accept", b"a"), (b"host", b"h"), (b"accept", b" b")])
    assert headers.all(b"accept") == (b"a", b" b")
    assert headers.all(b"origin") == ()
