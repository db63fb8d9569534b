"""The languages of an endpoint, and what views show in each (X33, X34, X37)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.manifest import Definition, FileRef, Languages, Skill, Translatable, file_digest
from mcpfleet.contracts.principal import Principal
from mcpfleet.views.languages import OfferedLanguages
from mcpfleet.views.rights import Policy
from mcpfleet.views.view import View, view_of

REF = FileRef(path="a.po", digest=file_digest(b"{}"), size=2)


def tool(name: str) -> Definition:
    """A tool with texts that could be taken for others."""
    schema = {"type": "object", "properties": {"title": {"type": "string", "enum": ["Title"]}}}
    wire = {"name": name, "title": "Title", "description": "Title", "inputSchema": schema}
    return Definition(kind="tool", name=name, wire=wire)


def skill() -> Definition:
    """A skill, whose description is frontmatter."""
    uri, file = "skill://a/SKILL.md", REF.model_copy(update={"path": "SKILL.md"})
    wire = {"uri": uri, "name": "a", "title": "Title", "description": "Title"}
    return Definition(
        kind="resource", name=uri, wire=wire, file=file, skill=Skill(frontmatter={"name": "a"}, files=(file,))
    )


def languages(default: str, *tags: str, translate: tuple[Translatable, ...] = ()) -> Languages:
    """The languages of a pool."""
    return Languages(default=default, files=dict.fromkeys(tags, REF), translate=translate)


def offered(
    pools: Mapping[str, Languages], texts: Mapping[tuple[str, str], Mapping[str, str]], **definitions: Definition
) -> tuple[OfferedLanguages, View]:
    """An endpoint's languages, and the view of the source. Definitions are named by their pools."""
    listed = tuple(Listed(pool=pool, digest=each.digest, definition=each) for pool, each in definitions.items())
    snapshot = Snapshot(
        endpoint="mcp", number=1, name="shop", version="1", title="Shop", listed=listed, languages=dict(pools)
    )
    policy = Policy.of(snapshot, hides_uncovered=False)
    return OfferedLanguages(snapshot, texts), view_of(snapshot, policy, policy.rights(Principal()))


def shown(view: View, kind: Any = "tool") -> list[Any]:
    """The entries of a list."""
    return list(json.loads(b"[%b]" % view.page(kind, 0, 0).items))


@pytest.mark.rule("X31")
def test_each_pool_answers_in_its_own_nearest_language() -> None:
    found, _ = offered({"one": languages("en", "de", "pt-BR"), "two": languages("fr", "en")}, {})
    assert (found.choose("de-AT"), found.of_pool("one", "de"), found.of_pool("two", "de")) == ("de", "de", "fr")
    assert found.of_pool("three", "de") is None
    assert found.choose("en") == "en"  # not the default of both
    assert found.choose("it") is None
    assert found.choose(None) is None
    assert found.named(None) == "en, fr"
    assert found.named("de") == "de"
    assert found.are_several


def test_the_default_language_by_its_name_is_the_default_one() -> None:
    found, _ = offered({"one": languages("en", "de")}, {})
    assert found.choose("en-GB,de;q=0.5") is None
    alone, _ = offered({"one": languages("en", "en")}, {})
    assert not alone.are_several


def test_many_preferences_are_not_remembered_for_ever() -> None:
    found, _ = offered({"one": languages("en", "de")}, {})
    for number in range(1_000):
        assert found.choose(f"de;q=0.{number:03}") == ("de" if number else None)
    assert len(found._chosen) <= 256


@pytest.mark.rule("X33", "X34")
def test_titles_are_translated_in_their_own_context_and_nothing_else_of_an_entry() -> None:
    texts = {"tool:a:title\x04Title": "Titel", "Title": "falsch", "tool:a:description\x04Title": "Beschreibung"}
    found, source = offered({"one": languages("en", "de")}, {("one", "de"): texts}, one=tool("a"))
    view = source.in_language("de", found)
    [entry] = shown(view)
    assert (entry["name"], entry["title"], entry["description"]) == ("a", "Titel", "Title")
    assert entry["inputSchema"] == tool("a").wire["inputSchema"]
    assert shown(source)[0]["title"] == "Title"
    assert view.list_digest("tools") != source.list_digest("tools")
    opted, source = offered(
        {"one": languages("en", "de", translate=("descriptions",))}, {("one", "de"): texts}, one=tool("a")
    )
    assert shown(source.in_language("de", opted))[0]["description"] == "Beschreibung"


@pytest.mark.rule("X34")
def test_a_skills_entry_is_never_translated() -> None:
    texts = {f"resource:skill://a/SKILL.md:{name}\x04Title": "falsch" for name in ("title", "description")}
    pools = {"one": languages("en", "de", translate=("descriptions",))}
    found, source = offered(pools, {("one", "de"): texts}, one=skill())
    assert shown(source.in_language("de", found), "resource") == [skill().wire]


@pytest.mark.rule("X37")
def test_lists_without_a_translation_share_their_bytes_and_digests() -> None:
    texts = {"tool:a:title\x04Title": "Titel"}
    found, source = offered({"one": languages("en", "de", "fr")}, {("one", "de"): texts}, one=tool("a"))
    german, french = (source.in_language(each, found) for each in ("de", "fr"))
    assert french.page("tool", 0, 0).items is source.page("tool", 0, 0).items
    assert german.page("tool", 0, 0).items is not source.page("tool", 0, 0).items
    assert german.page("prompt", 0, 0).items is source.page("prompt", 0, 0).items
    assert french.list_digest("tools") == source.list_digest("tools")
    assert german.in_language("fr", found).page("tool", 0, 0).items is source.page("tool", 0, 0).items


@pytest.mark.rule("X36")
def test_with_several_languages_texts_are_private_and_what_is_never_translated_is_not() -> None:
    found, source = offered({"one": languages("en", "de")}, {}, one=tool("a"))
    view = source.in_language(None, found)
    assert (view.list_scope("tool"), view.scope) == ("private", "public")
    assert source.list_scope("tool") == "public"


def test_the_servers_texts_are_those_of_its_only_pool() -> None:
    """With several pools they are the endpoint's, and no pool may name it."""
    texts = {("one", "de"): {"server:title\x04Shop": "Laden"}}
    pools = {"one": languages("en", "de")}
    found, source = offered(pools, texts, one=tool("a"))
    assert source.in_language("de", found).server_fields()["title"] == "Laden"
    found, source = offered(pools, texts, one=tool("a"), two=tool("b"))
    assert source.in_language("de", found).server_fields()["title"] == "Shop"
