"""An App includes Routers and other Apps: names, clashes, order, and what is declared later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.app import App, CallNext, Context, DeclarationError, Invocation, Outcome, Request, Resource, Router
from mcpfleet.app.handler import Answer
from mcpfleet.contracts.hints import Change
from mcpfleet.contracts.manifest import MOST_DEFINITIONS


class Heard:
    """A worker that counts what it hears."""

    def __init__(self) -> None:
        self.changes = 0
        self.published: list[Change] = []

    def changed(self) -> None:
        self.changes += 1

    def publish(self, change: Change) -> None:
        self.published.append(change)

    def permits_changed(self, uris: frozenset[str]) -> None:
        self.published.append(f"permits of {sorted(uris)}")


def pay(amount: int) -> int:
    return amount


def refund(amount: int) -> int:
    return -amount


def billing() -> Router:
    """A Router with a declaration of each kind."""
    router = Router()
    router.tool()(pay)

    @router.prompt()
    def remind(name: str) -> str:
        return f"Remind {name}."

    @router.completion(remind, "name")
    def names(typed: str) -> list[str]:
        return [typed + "n"]

    @router.resource("billing://terms")
    def terms() -> str:
        return "14 days"

    @router.resource("billing://invoices/{number}")
    def invoice(number: int) -> str:
        return f"invoice {number}"

    @router.resources()
    def invoices() -> list[Resource]:
        return [Resource(uri="billing://invoices/1", name="1")]

    return router


async def outcome(app: App, name: str, arguments: dict[str, Any]) -> Any:
    result = await app.tools[name].answer(Request(arguments), Context(), interceptors=app.interceptors)
    assert isinstance(result, Outcome)
    return result.structured


def test_an_included_router_shows_all_that_it_declares() -> None:
    app = App("shop", version="1")
    app.include(billing())
    shown = {(each.definition.kind, each.definition.name) for each in app.handlers}
    assert shown == {
        ("tool", "pay"),
        ("prompt", "remind"),
        ("resource", "billing://terms"),
        ("template", "billing://invoices/{number}"),
        ("lister", "invoices"),
    }
    assert len(app.manifest().named) == len(shown)


def test_a_prefix_stands_before_names_and_not_before_uris() -> None:
    app = App("shop", version="1")
    app.include(billing(), prefix="billing_")
    assert [*app.tools, *app.prompts] == ["billing_pay", "billing_remind"]
    assert [*app.reads] == ["billing://terms", "billing://invoices/{number}"]
    wire = app.tools["billing_pay"].definition.wire
    assert (wire["name"], wire["inputSchema"]["required"]) == ("billing_pay", ["amount"])


async def test_a_prefixed_tool_runs_its_function() -> None:
    app = App("shop", version="1")
    app.include(billing(), prefix="billing_")
    assert await outcome(app, "billing_pay", {"amount": 5}) == 5


async def test_a_completer_of_a_router_completes_the_prefixed_prompt() -> None:
    app = App("shop", version="1")
    app.include(billing(), prefix="billing_")
    asked = type("Asked", (), {"argument": "name", "value": "An", "context": {}})()
    answer = await app.prompts["billing_remind"].answer(Request(completing=asked), Context())
    assert isinstance(answer, Answer)
    assert answer.members["completion"]["values"] == ["Ann"]
    assert app.prompts["billing_remind"].definition.completes == ("name",)


def test_an_app_completes_the_prompt_of_a_router_by_its_name_there() -> None:
    router, app = Router(), App("shop", version="1")

    @router.prompt()
    def remind(name: str) -> str:
        return name

    app.include(router, prefix="billing_")

    @app.completion("billing_remind", "name")
    def names(typed: str) -> list[str]:
        return [typed]

    assert app.prompts["billing_remind"].definition.completes == ("name",)


def test_what_a_router_declares_later_appears_too() -> None:
    app, router, worker = App("shop", version="1"), Router(), Heard()
    app.include(router, prefix="b_")
    app.hosts.add(worker)
    router.tool()(pay)
    assert [*app.tools] == ["b_pay"]
    router.remove("tool", "pay")
    assert [*app.tools] == []
    assert worker.changes == 2


def test_routers_within_routers_add_their_prefixes() -> None:
    app, outer, inner, worker = App("shop", version="1"), Router(), Router(), Heard()
    app.hosts.add(worker)
    outer.include(inner, prefix="in_")
    app.include(outer, prefix="out_")
    inner.tool()(pay)
    assert [*app.tools] == ["out_in_pay"]
    assert worker.changes == 2


def test_one_router_may_serve_two_apps() -> None:
    first, second, router = App("first", version="1"), App("second", version="1"), Router()
    first.include(router)
    second.include(router, prefix="x_")
    router.tool()(pay)
    assert ([*first.tools], [*second.tools]) == (["pay"], ["x_pay"])


def test_an_app_may_include_another_and_keeps_its_own_name() -> None:
    shop, library = App("shop", version="1"), App("library", version="2", instructions="Read.")
    library.tool()(pay)
    shop.include(library)
    manifest = shop.manifest()
    assert (manifest.name, manifest.version, manifest.instructions) == ("shop", "1", None)
    assert len(manifest.definitions) == 1
    assert [*library.tools] == ["pay"]


async def test_interceptors_of_a_router_run_within_those_of_the_app_and_around_its_own_alone() -> None:
    app, outer, inner = App("shop", version="1"), Router(), Router()
    seen: list[str] = []

    def noting(name: str) -> Any:
        async def note(invocation: Invocation, call_next: CallNext) -> Any:
            seen.append(f"{name} {invocation.name}")
            return await call_next(invocation)

        return note

    outer.include(inner, prefix="in_")
    app.include(outer, prefix="out_")
    inner.tool()(pay)
    app.tool()(refund)
    for each, name in ((inner, "inner"), (app, "app"), (outer, "outer")):
        each.interceptor(noting(name))
    await outcome(app, "out_in_pay", {"amount": 1})
    await outcome(app, "refund", {"amount": 1})
    assert seen == ["app out_in_pay", "outer out_in_pay", "inner out_in_pay", "app refund"]


def test_watchers_of_routers_are_the_apps_watchers() -> None:
    app, router = App("shop", version="1"), Router()

    @router.watched
    def follow(uris: frozenset[str]) -> None: ...

    app.include(router)
    assert [each.name for each in app.watchers] == ["follow"]


def test_a_router_publishes_for_each_app_that_includes_it() -> None:
    app, router, worker = App("shop", version="1"), Router(), Heard()
    router.publish("billing://terms")  # nobody serves it, so nobody hears
    app.include(router)
    app.hosts.add(worker)
    router.publish("billing://terms")
    router.resources_changed()
    assert len(worker.published) == 2
    assert worker.published[0] == "billing://terms"


@pytest.mark.rule("M90")
def test_a_clash_at_inclusion_names_the_call_and_both_functions() -> None:
    app, router = App("shop", version="1"), Router()
    app.tool()(pay)
    router.tool("pay")(refund)
    with pytest.raises(DeclarationError) as caught:
        app.include(router)
    text = str(caught.value)
    assert f"{Path(__file__).name}:" in text
    assert "the tool name 'pay' of" in text
    assert f"{refund.__name__} (" in text
    assert f"taken by {pay.__module__}.pay (" in text
    assert [*app.tools] == ["pay"]


@pytest.mark.rule("M90")
def test_a_later_clash_names_both_functions_and_declares_nothing() -> None:
    app, router = App("shop", version="1"), Router()
    app.include(router, prefix="b_")
    app.tool("b_pay")(refund)
    with pytest.raises(DeclarationError, match=rf"{pay.__module__}\.pay .*'b_pay' is taken by .*refund \("):
        router.tool()(pay)
    assert [*router.tools] == []
    router.tool("x")(pay)
    with pytest.raises(DeclarationError, match="'b_x' is taken by"):
        app.tool("b_x")(refund)


def test_uris_clash_whatever_the_prefix() -> None:
    app = App("shop", version="1")
    app.include(billing(), prefix="a_")
    with pytest.raises(DeclarationError, match=r"'billing://terms' of .* would come twice: .* takes no prefix"):
        app.include(billing(), prefix="b_")


def test_a_router_may_be_included_twice_under_different_prefixes() -> None:
    app, router = App("shop", version="1"), Router()
    router.tool()(pay)
    app.include(router, prefix="a_")
    app.include(router, prefix="b_")
    assert [*app.tools] == ["a_pay", "b_pay"]
    with pytest.raises(DeclarationError, match=rf"included already, by .*{Path(__file__).name}:"):
        app.include(router, prefix="b_")
    with pytest.raises(DeclarationError, match="'shop://terms' is taken by"):
        router.resource("shop://terms")(lambda: "")


def test_a_router_that_comes_in_two_ways_is_refused() -> None:
    app, left, right, shared = App("shop", version="1"), Router(), Router(), Router()
    shared.tool()(pay)
    left.include(shared)
    right.include(shared)
    app.include(left)
    with pytest.raises(DeclarationError, match="would come twice"):
        app.include(right)


def test_a_circle_of_routers_is_refused() -> None:
    app, left, right = App("shop", version="1"), Router(), Router()
    left.include(right)
    for outer, inner in ((right, left), (left, left), (app, app)):
        with pytest.raises(DeclarationError, match="cannot include itself"):
            outer.include(inner)


@pytest.mark.parametrize(
    ("router", "prefix", "why"),
    [
        pytest.param(pytest, "", "takes a Router or an App, not module", id="a module"),
        pytest.param(Router(), "two words", "the prefix 'two words'", id="a prefix with a space"),
        pytest.param(App("other", version="1", clean=None), "", "another `clean`", id="an App that cleans otherwise"),
    ],
)
def test_what_cannot_be_included_is_refused(router: Any, prefix: str, why: str) -> None:
    with pytest.raises(DeclarationError, match=why) as caught:
        App("shop", version="1").include(router, prefix=prefix)
    assert Path(__file__).name in str(caught.value)


def test_a_name_that_is_too_long_with_its_prefix_is_refused() -> None:
    app, router = App("shop", version="1"), Router()
    router.tool("p" * 100)(pay)
    with pytest.raises(DeclarationError, match="1 to 128 characters"):
        app.include(router, prefix="x" * 29)


def test_included_declarations_count_against_the_bound() -> None:
    app, router = App("shop", version="1"), Router()
    app.include(router)
    filled = dict.fromkeys(map(str, range(MOST_DEFINITIONS)), app)
    router.declared.own["tool"].update(filled)  # type: ignore[arg-type]  # only their number counts
    with pytest.raises(DeclarationError, match="at most"):
        app.tool()(pay)


def test_a_declaration_of_a_router_is_removed_there() -> None:
    app, router = App("shop", version="1"), Router()
    router.tool()(pay)
    app.include(router, prefix="b_")
    with pytest.raises(LookupError, match=r"no tool named 'b_pay' itself: .* declares .*pay \("):
        app.remove("tool", "b_pay")
    with pytest.raises(LookupError, match=r"no tool named 'pay'$"):
        app.remove("tool", "pay")


async def test_threads_of_plain_functions_are_bounded_for_included_tools_too() -> None:
    app, router = App("shop", version="1"), Router()
    router.tool()(pay)
    app.include(router)
    found = await app.tools["pay"].call({"amount": 2}, Context(), threads=anyio.CapacityLimiter(1))
    assert found.structured == 2
