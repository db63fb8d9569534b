"""An application's own extension as its author declares it: what a wrong declaration says, and what is announced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mcpfleet.app import (
    App,
    AskError,
    Client,
    Context,
    DeclarationError,
    Extension,
    Invocation,
    OutputError,
    Request,
    Router,
)
from mcpfleet.contracts.hints import OwnChange
from mcpfleet.contracts.manifest import Definition

STOCK = "com.example/stock"


async def count(sku: str) -> dict[str, int]:
    """Count."""
    return {"count": len(sku)}


def extension(identifier: str = STOCK) -> Extension:
    return Extension(identifier)


def announced(app: App) -> dict[tuple[str, str], Definition]:
    """The definitions of own extensions that an App announces, by kind and name."""
    read = [Definition.model_validate_json(text) for text in app.manifest().extensions]
    return {(each.kind, each.name): each for each in read}


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.rule("X41")
@pytest.mark.parametrize(
    ("identifier", "why"),
    [
        ("stock", "must be a domain of yours backwards"),
        ("com.example/", "must be a domain of yours backwards"),
        ("com..example/a", "must be a domain of yours backwards"),
        ("1com/a", "must be a domain of yours backwards"),
        ("com.example/-a", "must be a domain of yours backwards"),
        ("com.example/" + "a" * 250, "up to 256 characters"),
        ("io.modelcontextprotocol/ui", "MCP's own"),
        ("dev.mcp/ui", "MCP's own"),
        ("modelcontextprotocol/ui", "MCP's own"),
    ],
)
def test_an_identifier_needs_a_prefix_that_is_none_of_mcps_own(identifier: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        Extension(identifier)
    assert "test_extensions.py:" in str(caught.value)
    with pytest.raises(DeclarationError, match=why):
        App("shop", experimental={identifier: {}})


@pytest.mark.rule("X41")
@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (["piece"], "must be an object"),
        ({1: 2}, "must be an object"),
        ({"at": object()}, "cannot be written as JSON"),
        ({"at": float("nan")}, "cannot be written as JSON"),
        ({"units": "x" * 4096}, "at most 4096 travel"),
    ],
)
def test_settings_are_an_object_of_up_to_4_kib(settings: Any, why: str) -> None:
    with pytest.raises(DeclarationError, match=why):
        Extension(STOCK, settings=settings)
    with pytest.raises(DeclarationError, match=why):
        App("shop", experimental={STOCK: settings})


@pytest.mark.rule("X42")
@pytest.mark.parametrize(
    "name",
    [
        "tools/call", "tools/mine", "skills/list", "server/discover", "prompts/x", "completion/x", "sampling/x",
        "notifications/x", "roots/list", "Tasks/get", "tasks.x/get", "ping/x", "initialize/x", "ui/x", "rpc/x",
    ],
)  # fmt: skip
def test_no_method_has_a_name_of_mcps_own(name: str) -> None:
    with pytest.raises(DeclarationError, match=r"MCP's own .*begin with your extension's") as caught:
        extension().method(name)(count)
    assert "count" in str(caught.value)


@pytest.mark.rule("X42")
@pytest.mark.parametrize("name", ["stock", "ping", "/stock", "stock/", "stock//a", "stock/a b", "stock/" + "a" * 123])
def test_a_method_has_parts_with_slashes_between_them(name: str) -> None:
    with pytest.raises(DeclarationError, match="two parts or more"):
        extension().method(name)(count)


@pytest.mark.rule("X42")
@pytest.mark.parametrize(
    ("name", "field", "why"),
    [
        ("stock/changed", "items", "must begin with `notifications/`"),
        ("notifications/", "items", "must begin with `notifications/`"),
        ("notifications/cancelled", "items", "MCP's own"),
        ("notifications/tools/list_changed", "items", "MCP's own"),
        ("notifications/tasks", "items", "MCP's own"),
        ("notifications/stock/changed", "taskIds", "MCP's own"),
        ("notifications/stock/changed", "resourceSubscriptions", "MCP's own"),
        ("notifications/stock/changed", "stock items", "must be a name"),
    ],
)
def test_no_notification_and_no_filter_has_a_name_of_mcps_own(name: str, field: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        extension().notification(name, filter=field)
    assert "test_extensions.py:" in str(caught.value)


@pytest.mark.rule("X42")
def test_two_extensions_of_an_app_share_no_name_whatever_comes_first() -> None:
    app, one, two = App("shop"), extension(), extension("com.example/other")
    one.method("stock/count")(count)
    one.notification("notifications/stock/changed", filter="items")
    app.add(one)
    app.add(two)
    with pytest.raises(DeclarationError, match=r"'stock/count' is taken by .*test_extensions\.py"):
        two.method("stock/count")(count)
    with pytest.raises(DeclarationError, match=f"is taken by the extension {STOCK}"):
        two.notification("notifications/stock/changed", filter="others")
    with pytest.raises(DeclarationError, match="'items' is taken by notifications/stock/changed"):
        two.notification("notifications/other/changed", filter="items")
    late = extension("com.example/late")
    late.notification("notifications/late/changed", filter="items")
    with pytest.raises(DeclarationError, match="'items' is taken by"):
        app.add(late)
    with pytest.raises(DeclarationError, match="is added already"):
        app.add(one)
    with pytest.raises(DeclarationError, match="is declared twice"):
        app.add(extension())
    with pytest.raises(DeclarationError, match="takes an Extension, not Router"):
        app.add(Router())  # type: ignore[arg-type]  # the mistake
    assert {name for _, name in announced(app)} == {
        STOCK, "com.example/other", "stock/count", "notifications/stock/changed",
    }  # fmt: skip


# -- methods ----------------------------------------------------------------------------------------------------------


def text_result() -> str:
    return ""


def list_result() -> list[int]:
    return []


def own_member() -> dict[str, Any]:
    return {}


async def asks(ctx: Context) -> dict[str, int]:
    await ctx.elicit("how many", dict[str, int])
    return {}


def number(sku: int) -> None: ...


def defaulted(sku: str = "lamp") -> None: ...


def untyped(sku) -> None:  # type: ignore[no-untyped-def]  # the mistake
    ...


@pytest.mark.rule("X43", "X44", "X45")
@pytest.mark.parametrize(
    ("handler", "options", "why"),
    [
        (text_result, {}, "result is an object.*no text"),
        (list_result, {}, "of type 'array'"),
        (asks, {}, "asks the client nothing"),
        (untyped, {}, "no annotation"),
        (count, {"name": "item"}, "is no parameter of the function"),
        (number, {"name": "sku"}, "annotate it with `str`, without default"),
        (defaulted, {"name": "sku"}, "annotate it with `str`, without default"),
        (count, {"rate": (0, 60)}, "rate must be"),
        (count, {"rate": 3}, "rate must be"),
        (count, {"ttl": -1}, "ttl must be"),
        (count, {"timeout": 0}, "timeout must be"),
        (count, {"scopes": "stock"}, "collection of strings"),
        (count, {"only_for": ["ann"]}, "only_for has"),
        (count, {"scope": ["stock"]}, "did you mean 'scopes'"),
        (count, {"asks": ["sampling"]}, "has no argument 'asks'"),
    ],
)
def test_a_wrong_method_says_what_is_wrong_and_where(
    handler: Callable[..., Any], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        extension().method("stock/count", **options)(handler)
    assert f"{handler.__name__} (" in str(caught.value)
    assert "test_extensions.py:" in str(caught.value)


@pytest.mark.rule("X41", "X47")
def test_revisions_are_known_and_at_least_one() -> None:
    for revisions in ((), "2026-07-28", ("2024-11-05",)):
        with pytest.raises(DeclarationError, match="revisions"):
            Extension(STOCK, revisions=revisions)
    app, own = App("shop"), Extension(STOCK, revisions={"2025-11-25", "2026-07-28"})
    own.method("stock/count")(count)
    app.add(own)
    assert {each.revisions for each in announced(app).values()} == {("2025-11-25", "2026-07-28")}


@pytest.mark.rule("X41")
def test_what_is_declared_after_it_is_added_appears_and_a_router_brings_it() -> None:
    app, router, own = App("shop", experimental={"com.example/beta": {"level": 1}}), Router(), extension()
    router.add(own)
    assert set(announced(app)) == {("experimental", "com.example/beta")}
    app.include(router, prefix="stock_")
    own.method("stock/count", name="sku", rate=(3, 60), ttl=5, scopes=["stock"])(count)
    found = announced(app)
    assert set(found) == {
        ("experimental", "com.example/beta"), ("extension", STOCK), ("method", "stock/count"),
    }  # fmt: skip
    made = found["method", "stock/count"]
    assert (made.extension, made.mirrors, made.ttl, made.scopes) == (STOCK, "sku", 5, ("stock",))
    assert made.rate is not None
    assert made.wire["params"]["properties"] == {"sku": {"type": "string"}}
    assert app.manifest().definitions == ()


@pytest.mark.rule("X44")
async def test_a_method_runs_behind_the_apps_interceptors() -> None:
    app, own = App("shop"), extension()
    own.method("stock/count")(count)
    app.add(own)
    seen: list[tuple[str, str]] = []

    async def around(invocation: Invocation, call_next: Any) -> Any:
        seen.append((invocation.kind, invocation.name))
        return await call_next(invocation)

    [handler] = app.handlers
    answer = await handler.answer(Request({"sku": "lamp"}), Context(), interceptors=[around])
    assert answer.fields() == {"count": 4}
    assert seen == [("method", "stock/count")]


@pytest.mark.rule("X45")
@pytest.mark.parametrize("value", ["text", [1], {"_meta": {}}, {"resultType": "x"}, {"ttlMs": 1}, {"cacheScope": "x"}])
async def test_a_result_that_is_no_object_of_its_own_is_the_authors_mistake(value: Any) -> None:
    own = extension()

    @own.method("stock/any")
    async def anything():  # type: ignore[no-untyped-def]  # any value
        return value

    [handler] = own.declared.of("method").values()
    with pytest.raises(OutputError, match=r"object|writes itself"):
        await handler.answer(Request({}), Context())


# -- telling ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("X46")
async def test_a_key_is_told_as_it_is_and_only_of_an_added_extension() -> None:
    app, own = App("shop"), extension()
    changed = own.notification("notifications/stock/changed", filter="stockItems")
    told: list[Any] = []
    with pytest.raises(AskError, match=r"add its extension .*app\.add"):
        await Context(publish=told.append).tell(changed, "lamp")
    app.add(own)
    await Context(publish=told.append).tell(changed, "lamp")
    Context(publish=told.append).sync.tell(changed, "chair")
    app.tell(changed, "nobody serves it")
    assert told == [OwnChange(changed.name, "lamp"), OwnChange(changed.name, "chair")]
    for key in ("", "x" * 2049, 7):
        with pytest.raises(AskError, match="1 to 2048 characters"):
            await Context().tell(changed, key)  # type: ignore[arg-type]  # the mistake


@pytest.mark.rule("X46")
def test_a_change_reads_back_from_its_text_with_any_key() -> None:
    for key in ("lamp", "a b", "", "ü/%"):
        change = OwnChange("notifications/stock/changed", key)
        assert OwnChange.read(change.text) == change


@pytest.mark.rule("X47")
def test_a_clients_extensions_are_those_of_the_request() -> None:
    assert Client(None, {"extensions": {STOCK: {"version": 1}, "bad": 1}}).extensions == {STOCK: {"version": 1}}
    malformed: tuple[dict[str, Any] | None, ...] = (None, {}, {"extensions": []})
    for declared in malformed:
        assert Client(None, declared).extensions == {}
