"""A request's headers, by their names."""

from __future__ import annotations

import pytest

from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers


@pytest.mark.rule("M4")
@pytest.mark.parametrize(
    ("value", "text"),
    [(b"plain", "plain"), (b" \t around \t", "around"), (b"", ""), (b"a\tb c", "a\tb c")],
)
def test_a_header_is_read_without_the_spaces_and_tabs_around_it(value: bytes, text: str) -> None:
    assert Headers([(b"accept", b"x"), (b"mcp-name", value)]).single(b"mcp-name") == text


def test_a_header_that_is_absent_is_none() -> None:
    assert Headers([(b"accept", b"x")]).single(b"mcp-name") is None


@pytest.mark.rule("M5")
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
def test_a_header_that_is_repeated_or_has_invalid_characters_is_a_mismatch(values: list[bytes]) -> None:
    with pytest.raises(Rejection) as raised:
        Headers([(b"mcp-name", value) for value in values]).single(b"mcp-name")
    assert (raised.value.status, raised.value.code) == (400, -32020)


def test_every_value_of_a_header_is_kept_in_its_order() -> None:
    headers = Headers([(b"accept", b"a"), (b"host", b"h"), (b"accept", b" b")])
    assert headers.all(b"accept") == (b"a", b" b")
    assert headers.all(b"origin") == ()


def stated(values: list[bytes]) -> str | None:
    return Headers([(b"mcp-protocol-version", value) for value in values]).version()


@pytest.mark.rule("L21")
@pytest.mark.parametrize(
    ("values", "version"),
    [
        ([], None),
        ([b"a"], "a"),
        ([b" a\t"], "a"),
        ([b"a", b"a"], "a"),
        ([b"a, a"], "a"),
        ([b"a,a", b"\ta ", b"a"], "a"),
        ([b"a, "], "a"),
        ([b""], ""),
        ([b"", b""], ""),
        ([b","], ""),
    ],
)
def test_a_version_that_is_repeated_counts_once(values: list[bytes], version: str | None) -> None:
    assert stated(values) == version


@pytest.mark.rule("L21")
@pytest.mark.parametrize("values", [[b"a", b"b"], [b"a, b"], [b"a", b"a, b"], [b"\xe9"], [b"a\x00"], [b"\xe9", b"a"]])
def test_versions_that_differ_or_cannot_be_read_are_a_mismatch(values: list[bytes]) -> None:
    with pytest.raises(Rejection) as raised:
        stated(values)
    assert (raised.value.status, raised.value.code) == (400, -32020)
