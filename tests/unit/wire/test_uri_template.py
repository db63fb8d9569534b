"""URI templates: what they match, and what their variables are."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as some

from mcpfleet.wire.uri_template import MOST_VARIABLES, BadTemplate, UriTemplate
from tests.kit.cost import cost


@pytest.mark.rule("M43")
@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a://b/{x}", "a://b/1", {"x": "1"}),
        ("a://b/{x}/c", "a://b/1/c", {"x": "1"}),
        ("a://{x}/{y}", "a://1/2", {"x": "1", "y": "2"}),
        ("a://b/{x}.txt", "a://b/c.d.txt", {"x": "c.d"}),
        ("a://b/{x}-{y}", "a://b/1-2-3", {"x": "1", "y": "2-3"}),
        ("a://b/{x}.txt/{y}", "a://b/c.d.txt/2", {"x": "c.d", "y": "2"}),
        ("a://b?q={x}&page={y}", "a://b?q=d/e&page=2", {"x": "d/e", "y": "2"}),
        ("a://b/{+x}", "a://b/c/d/e", {"x": "c/d/e"}),
        ("a://b/{x}", "a://b/%C3%A9%20%2F", {"x": "é /"}),
        ("a://b/{x}", "a://b/é", {"x": "é"}),
        ("a:{x}", "a:1", {"x": "1"}),
        ("a://b", "a://b", {}),
    ],
)
def test_a_uri_of_the_template_gives_its_variables(template: str, uri: str, values: dict[str, str]) -> None:
    assert UriTemplate.parse(template).match(uri) == values
    assert UriTemplate.parse(template).variables == tuple(values)


@pytest.mark.rule("M43")
@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("a://b/{x}", "a://b/"),
        ("a://b/{x}", "a://b/1/2"),
        ("a://b/{x}", "a://b/1?q=2"),
        ("a://b/{x}", "a://b/1#2"),
        ("a://b/{x}", "A://b/1"),
        ("a://b/{x}", "a://b/1\n"),
        ("a://b/{x}", "a://b/%"),
        ("a://b/{x}", "a://b/%zz"),
        ("a://b/{x}", "a://b/%ff"),
        ("a://b/{x}", "a://b/%00"),
        ("a://b/{+x}", "a://b/"),
        ("a://b/{+x}", "a://b/c?q"),
        ("a://b.c/{x}", "a://bxc/1"),
    ],
)
def test_any_other_uri_does_not_match(template: str, uri: str) -> None:
    assert UriTemplate.parse(template).match(uri) is None


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("a://b/{}", "not supported"),
        ("a://b/{x*}", "not supported"),
        ("a://b/{?x}", "not supported"),
        ("a://b/{x,y}", "not supported"),
        ("a://b/{+x}/c", "end"),
        ("a://b/{x}{y}", "literal"),
        ("a://b/{x}/{x}", "twice"),
        ("a://b/{x", "percent-encode"),
        ("a://b/{{x}}", "percent-encode"),
        ("a://b c/{x}", "percent-encode"),
        ("a://b/" + "/".join(f"{{x{number}}}" for number in range(MOST_VARIABLES + 1)), "at most"),
    ],
)
def test_what_cannot_be_matched_is_refused_and_says_why(template: str, why: str) -> None:
    with pytest.raises(BadTemplate, match=why):
        UriTemplate.parse(template)


def test_the_most_specific_template_comes_first() -> None:
    texts = ["a://b/{+x}", "a://b/{x}", "a://b/{x}/c", "a://{y}/{x}"]
    ranked = sorted(map(UriTemplate.parse, texts), key=lambda template: template.rank)
    assert [template.text for template in ranked] == ["a://b/{x}/c", "a://b/{x}", "a://{y}/{x}", "a://b/{+x}"]


@given(some.text(min_size=1).filter(lambda text: "\0" not in text and text.isprintable()))
def test_what_a_client_expands_comes_back(value: str) -> None:
    """RFC 6570, level 1: all but unreserved characters is percent-encoded."""
    uri = f"a://b/{quote(value, safe='')}/c"
    assert UriTemplate.parse("a://b/{x}/c").match(uri) == {"x": value}


def test_no_uri_takes_long_to_refuse() -> None:
    template = UriTemplate.parse("a://b/" + "-".join(f"{{x{number}}}" for number in range(MOST_VARIABLES)) + "/z")
    uri = "a://b/" + "-a" * 50_000
    assert template.match(uri) is None
    assert cost(lambda: template.match(uri)) < 1
