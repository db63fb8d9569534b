"""Language preferences: their grammar, and the language that fits one (RFC 9110, 12.5.4; RFC 4647, 3.4)."""

from __future__ import annotations

import json

import pytest
from mcp_types import HEADER_MISMATCH

from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal
from mcpfleet.edge.tasks.read import language_of, policy_allows, policy_of
from mcpfleet.wire.errors import Rejection
from mcpfleet.wire.headers import Headers
from mcpfleet.wire.language import (
    CONTENT_LANGUAGE_META_KEY,
    LONGEST_PREFERENCE,
    MOST_RANGES,
    check_mirrored,
    look_up,
    read_preference,
    stated_preference,
    tag_of,
)
from mcpfleet.wire.notices import SUBSCRIPTION_ID_META_KEY, task_changed
from mcpfleet.wire.reply import progress

OFFERED = ("en", "de", "pt-BR", "zh-Hant")


@pytest.mark.rule("X31")
@pytest.mark.parametrize(
    ("preference", "found"),
    [
        ("de", "de"),
        ("DE-ch", "de"),
        ("de-CH,*;q=0.1", "de"),
        ("fr,de;q=0.2,en;q=0.1", "de"),
        ("en;q=0.1,de;q=0.2", "de"),
        ("pt", None),  # a range is shortened, a tag never is
        ("pt-BR-x-north", "pt-BR"),
        ("zh-Hant-TW", "zh-Hant"),
        ("de-x-de", "de"),
        ("*", "en"),
        ("*;q=0.5,en;q=0.1", "de"),
        ("de;q=0,*", "en"),
        ("en;q=0,*", "de"),
        ("de-CH,de;q=0", None),
        ("de;q=0,de-CH;q=0.5,pt-BR;q=0.1", "pt-BR"),
        ("en;q=0", None),
        ("fr", None),
        (" , de ;\tq=0.3 ,, ", "de"),
        ("de;Q=1.000", "de"),
        ("", None),
        (",,", None),
    ],
)
def test_a_preference_finds_the_language_that_fits_best(preference: str, found: str | None) -> None:
    assert look_up(preference, OFFERED) == found


@pytest.mark.rule("X31")
@pytest.mark.parametrize(
    "preference",
    [
        "de;q=1.5",
        "de;q=.5",
        "de;q=0.1234",
        "de;q=",
        "de;q=0.5;x=1",
        "de;level=1",
        "de_DE",
        "de-",
        "deutschland",
        "de-DE-deutschland",
        "1de",
        "de fr",
        "*-DE",
        "dé",
        "de\n",
        "de,!",
        ",".join(["de"] * (MOST_RANGES + 1)),
        "de," + " " * LONGEST_PREFERENCE + "de",
    ],
)
def test_a_malformed_or_too_long_preference_is_none(preference: str) -> None:
    assert read_preference(preference) == ()
    assert look_up(preference, OFFERED) is None


@pytest.mark.rule("X31")
def test_the_bounds_themselves_are_allowed() -> None:
    assert len(read_preference(",".join(["de"] * MOST_RANGES))) == MOST_RANGES
    assert read_preference("de," + " " * (LONGEST_PREFERENCE - 6) + "fr,")


@pytest.mark.parametrize(
    ("name", "tag"),
    [("pt_br", "pt-BR"), ("ZH_hant_tw", "zh-Hant-TW"), ("de", "de"), ("sl-rozaj-1994", "sl-rozaj-1994")],
)
def test_a_tag_has_its_usual_spelling(name: str, tag: str) -> None:
    assert tag_of(name) == tag


@pytest.mark.rule("X30")
def test_a_header_repeats_the_body_byte_for_byte_or_is_absent() -> None:
    check_mirrored(Headers([]), "de, en")
    check_mirrored(Headers([(b"accept-language", b"de, en")]), "de, en")
    for header in (b"de,en", b"DE, en", b"de"):
        with pytest.raises(Rejection) as refused:
            check_mirrored(Headers([(b"accept-language", header)]), "de, en")
        assert (refused.value.status, refused.value.code) == (400, HEADER_MISMATCH)
    with pytest.raises(Rejection):
        check_mirrored(Headers([(b"accept-language", b"de"), (b"accept-language", b"en")]), "de, en")
    with pytest.raises(Rejection):
        check_mirrored(Headers([(b"accept-language", b"de")]), 5)


def test_several_lines_of_a_bare_header_are_one_list() -> None:
    assert stated_preference(Headers([])) is None
    assert (
        stated_preference(Headers([(b"accept-language", b"de"), (b"accept-language", b"en;q=0.5")])) == "de, en;q=0.5"
    )


@pytest.mark.rule("X35")
def test_notices_and_progress_name_their_language_where_it_is_told() -> None:
    told = json.loads(task_changed(b'{"taskId":"a"}', "de").event(b"1").partition(b"data: ")[2])
    assert told["params"]["_meta"] == {SUBSCRIPTION_ID_META_KEY: 1, CONTENT_LANGUAGE_META_KEY: "de"}
    assert told["params"]["taskId"] == "a"
    plain = json.loads(task_changed(b'{"taskId":"a"}').event(b"1").partition(b"data: ")[2])
    assert plain["params"]["_meta"] == {SUBSCRIPTION_ID_META_KEY: 1}
    report = json.loads(progress(1, b'{"progress":1,"message":"a"}', "de"))["params"]
    assert report == {"progressToken": 1, "progress": 1, "message": "a", "_meta": {CONTENT_LANGUAGE_META_KEY: "de"}}
    assert "_meta" not in json.loads(progress(1, b'{"progress":1}', "de"))["params"]


@pytest.mark.rule("X32")
def test_a_tasks_policy_keeps_its_language_as_former_releases_read_it() -> None:
    plain = Definition(kind="tool", name="a", wire={})
    scoped = plain.model_copy(update={"scopes": ("a",)})
    assert (policy_of(plain), language_of(None), language_of(policy_of(scoped))) == (None, None, None)
    for definition in (plain, scoped):
        kept = policy_of(definition, "pt-BR")
        assert language_of(kept) == "pt-BR"
        assert policy_allows(kept, Principal(subject="ann", scopes=("a",)))
        assert set(json.loads(kept or "")) == {"scopes", "only_for", "language"}
    assert language_of('{"language":"<script>"}') is None
    assert language_of("not JSON") is None
