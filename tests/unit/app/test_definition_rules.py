"""The rules of definitions of each kind, which the catalog checks before it stores them."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.app import App, Resource
from mcpfleet.app.definition_rules import faults
from mcpfleet.bus.errors import Failed
from mcpfleet.catalog.manifests import read_manifest
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.contracts.manifest import Definition, Kind, Manifest

SECRET = "hunter2"


def broken(kind: Kind, name: str, wire: dict[str, Any] | None = None, **members: Any) -> str:
    return "; ".join(faults(Definition(kind=kind, name=name, wire=wire or {}, **members)))


def prompt(**wire: Any) -> dict[str, Any]:
    return {"name": "review"} | wire


def resource(**wire: Any) -> dict[str, Any]:
    return {"uri": "library://books", "name": "books"} | wire


def template(**wire: Any) -> dict[str, Any]:
    return {"uriTemplate": "library://{book}", "name": "book"} | wire


@pytest.mark.parametrize(
    ("kind", "name", "wire", "members", "rule"),
    [
        ("prompt", "no spaces", prompt(name="no spaces"), {}, "name: 1 to 128"),
        ("prompt", "review", prompt(name="other"), {}, "wire.name: must be"),
        ("prompt", "review", prompt(arguments=[SECRET]), {}, "wire: arguments"),
        ("prompt", "review", prompt(arguments=[{"name": "a"}] * 257), {}, "too_long"),
        ("prompt", "review", prompt(arguments=[{"name": "a"}] * 2), {}, "names must differ"),
        ("prompt", "review", prompt(), {"completes": [SECRET]}, "completes: "),
        ("prompt", "review", prompt(icons=[{"src": "http://" + SECRET}]), {}, "wire.icons: "),
        ("resource", "library://books", resource(uri="library://other"), {}, "wire.uri: must be"),
        ("resource", "books", resource(uri="books"), {}, "name: a URI, absolute"),
        ("resource", "library://a/../b", resource(uri="library://a/../b"), {}, "name: a URI, absolute"),
        ("resource", "library://books", {"uri": "library://books"}, {}, "wire: name: missing"),
        ("resource", "library://books", resource(), {"completes": ["a"]}, "completes: "),
        ("resource", "library://books", resource(size=SECRET), {}, "wire: size"),
        ("template", "library://{book", template(uriTemplate="library://{book"), {}, "name: a URI, a template"),
        ("template", "library://{book}", template(), {"completes": ["page"]}, "completes: "),
        ("template", "library://{book}", template(annotations={"priority": 7}), {}, "wire: annotations"),
        ("lister", "shelf", {"name": "shelf"}, {}, "wire: must be empty"),
        ("lister", "shelf", {}, {"scopes": [f'"{SECRET}"']}, "scopes: "),
        ("lister", "shelf", {}, {"scopes_if": {"large": {}}}, "scopes_if: "),
        ("lister", "shelf", {}, {"scopes_if": {f'"{SECRET}"': {}}}, "scopes_if: "),
        ("lister", "shelf", {}, {"scopes_if": {"large": {"type": SECRET}}}, "scopes_if: "),
        ("lister", "shelf", {}, {"only_for": [SECRET]}, "only_for: "),
        ("lister", "shelf", {}, {"asks": [SECRET]}, "asks: "),
        ("lister", "shelf", {}, {"may_ask": [SECRET]}, "may_ask: "),
    ],
)
def test_what_would_spoil_a_list_is_refused_by_field_and_rule(
    kind: Kind, name: str, wire: dict[str, Any], members: dict[str, Any], rule: str
) -> None:
    told = broken(kind, name, wire, **members)
    assert rule in told
    assert SECRET not in told


def test_what_an_application_announces_is_taken() -> None:
    app = App("test", version="1")

    @app.tool(rate=(1, 1), only_for=["tenant:acme"], may_ask={"sampling"})
    async def add(left: int, right: int) -> int:
        return left + right

    @app.prompt()
    async def review(title: str) -> str:
        return title

    @app.completion(review, "title")
    async def titles(typed: str) -> list[str]:
        return [typed]

    @app.resource("library://books", ttl=5)
    async def books() -> str:
        return ""

    @app.resource("library://books/{book}")
    async def book(book: int) -> str:
        return ""

    @app.completion(book, "book")
    async def numbers(typed: str) -> list[str]:
        return [typed]

    @app.resources()
    async def shelf() -> list[Resource]:
        return []

    manifest = app.manifest()
    assert read_manifest(manifest.text, manifest.digest, CatalogSettings()) == manifest


@pytest.mark.rule("X41", "X42")
@pytest.mark.parametrize(
    ("kind", "name", "wire", "members", "rule"),
    [
        ("method", "tools/" + SECRET, {}, {"extension": "com.example/stock"}, "name: parts"),
        ("method", "stock/" + SECRET, {}, {}, "extension: must name"),
        ("notification", "notifications/tools/" + SECRET, {}, {"extension": "a.b/c", "filter": "f"}, "name: `notif"),
        ("notification", "notifications/stock/x", {}, {"extension": "a.b/c", "filter": "taskIds"}, "filter: a name"),
        ("extension", "io.modelcontextprotocol/" + SECRET, {}, {}, "name: a domain"),
        ("extension", "com.example/stock", {"a": SECRET * 600}, {}, "wire: an object"),
        ("experimental", SECRET, {}, {}, "name: a domain"),
    ],
)
def test_a_definition_of_an_own_extension_that_clients_would_misread_is_refused(
    kind: Kind, name: str, wire: dict[str, Any], members: dict[str, Any], rule: str
) -> None:
    found = broken(kind, name, wire, **members)
    assert rule in found
    assert SECRET not in found


@pytest.mark.rule("X41")
def test_a_manifest_keeps_own_extensions_apart_from_lists() -> None:
    own = Definition(kind="extension", name="com.example/stock", wire={})
    for manifest in (
        Manifest(name="a", version="1", definitions=(own.text,)),
        Manifest(name="a", version="1", extensions=(tool("search").text,)),
    ):
        with pytest.raises(Failed, match="belongs to the other member"):
            read_manifest(manifest.text, manifest.digest, CatalogSettings())
    manifest = Manifest(name="a", version="1", extensions=(own.text,))
    assert read_manifest(manifest.text, manifest.digest, CatalogSettings()) == manifest


def tool(name: str) -> Definition:
    return Definition(kind="tool", name=name, wire={"name": name, "inputSchema": {"type": "object"}})
