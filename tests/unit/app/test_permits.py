"""How permits are declared, and what a bad one is told (X50)."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.app import (
    App,
    Caller,
    Context,
    DeclarationError,
    Extension,
    NotFound,
    Principal,
    Request,
    Router,
    Variables,
)
from mcpfleet.app.permit import PermitFailed
from mcpfleet.app.resource import Reads

ANN, BOB = Principal(subject="ann"), Principal(subject="bob")


async def own(caller: Caller, asked: list[Variables]) -> list[bool]:
    """Everybody reads what has the own name."""
    return [caller.subject == each["name"] for each in asked]


def bank() -> App:
    app = App("bank", version="1")

    @app.resource("acct://accounts/{name}")
    async def account(name: str) -> str:
        return f"money of {name}"

    account.permit(own)
    return app


@pytest.mark.rule("X50")
async def test_a_permit_is_declared_by_the_function_and_runs_outside_of_interceptors() -> None:
    app, seen = bank(), list[Any]()

    @app.interceptor
    async def answer_for_all(invocation: Any, call_next: Any) -> Any:
        seen.append(invocation.uri)
        return "cached"

    handler = app.reads["acct://accounts/{name}"]
    request = Request({}, uri="acct://accounts/ann")
    answer: Any = await handler.answer(request, Context(principal=ANN), interceptors=app.interceptors)
    assert answer.members["contents"][0]["text"] == "cached"
    with pytest.raises(NotFound):
        await handler.answer(request, Context(principal=BOB), interceptors=app.interceptors)
    assert seen == ["acct://accounts/ann"]


@pytest.mark.rule("X50")
def test_having_a_permit_is_part_of_the_digest_and_makes_answers_private() -> None:
    app = App("bank", version="1")

    @app.resource("acct://accounts/{name}")
    async def account(name: str) -> str:
        return "money"

    before = app.reads["acct://accounts/{name}"].definition
    app.permit("acct://accounts/{name}")(own)
    after = app.reads["acct://accounts/{name}"].definition
    assert before.digest != after.digest
    assert (after.permit, after.per_caller, before.permit) == (True, True, False)


async def test_the_function_stays_as_it_is_for_each_of_its_resources_and_where_it_is_included() -> None:
    router = Router()

    async def account(name: str) -> str:
        return name

    first = router.resource("acct://accounts/{name}")(account)
    assert router.resource("acct://accounts/{name}/notes")(account) is first is account
    app = App("bank", version="1")
    app.include(router)
    first.permit(own)
    assert [each.definition.permit for each in app.reads.values()] == [True, True]
    assert await account("ann") == "ann"


async def test_plain_permits_and_methods_and_resources_without_variables() -> None:
    class Store:
        async def rates(self) -> str:
            return "1.5"

        def may_read(self, caller: Caller, asked: list[Variables]) -> list[bool]:
            return [each.uri == "rates://today" and not each and caller.subject == "ann" for each in asked]

    app, store = App("bank", version="1"), Store()
    app.resource("rates://today")(store.rates)
    app.permit("rates://today")(store.may_read)
    handler = app.reads["rates://today"]
    assert await handler.permits(ANN, ["rates://today"]) == [True]
    assert await handler.permits(BOB, ["rates://today"]) == [False]


@pytest.mark.parametrize("wrong", [[], [True, True], [1], None, "y", [None]])
async def test_anything_but_so_many_truths_is_no_answer_and_says_where(wrong: Any) -> None:
    app = App("bank", version="1")

    @app.resource("acct://accounts/{name}")
    async def account(name: str) -> str:
        return "money"

    @account.permit
    async def may_read(caller: Caller, asked: list[Variables]) -> Any:
        return wrong

    handler: Reads = app.reads["acct://accounts/{name}"]
    with pytest.raises(PermitFailed, match=r"may_read \(.*test_permits\.py:\d+\) must return a list of"):
        await handler.permits(ANN, ["acct://accounts/ann"])


async def test_a_uri_of_another_resource_or_with_a_bad_variable_is_refused_without_a_question() -> None:
    app = bank()
    handler = app.reads["acct://accounts/{name}"]
    assert await handler.permits(ANN, ["acct://accounts/ann", "else://where"]) == [True, False]


def test_bad_declarations_say_what_and_where() -> None:
    app = bank()
    with pytest.raises(DeclarationError, match=r"has a permit already: .*own \(.*test_permits\.py:\d+\)"):
        app.permit("acct://accounts/{name}")(own)
    with pytest.raises(DeclarationError, match="'acct://else' is no resource or template of this App"):
        app.permit("acct://else")(own)

    def one(caller: Caller) -> list[bool]:
        return []

    with pytest.raises(DeclarationError, match=r"test_permits\.py:\d+\): a permit takes two parameters: "):
        app.permit("acct://accounts/{name}")(one)  # type: ignore[type-var]


@pytest.mark.rule("X50")
async def test_a_notification_takes_one_permit_of_two_parameters_which_changes_its_digest() -> None:
    stock = Extension("com.example/stock")
    changed = stock.notification("notifications/stock/changed", filter="stockItems")
    App("shop").add(stock)
    before = changed.definition.digest
    with pytest.raises(DeclarationError, match=r"two parameters: .* `asked: list\[str\]`"):
        changed.permit(lambda: [True])  # type: ignore[type-var]  # the mistake
    changed.permit(lambda caller, asked: [caller.subject == key for key in asked])
    assert changed.definition.digest != before
    assert await changed.permits(ANN, ["ann", "bob"]) == [True, False]
    with pytest.raises(DeclarationError, match="has a permit already"):
        changed.permit(lambda caller, asked: [True])
