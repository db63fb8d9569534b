"""Questions to a client: each run of a handler, and what the next one knows."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from mcpfleet.app import Answers, AskError, ClientLacks, Context, Declined, SamplingMessage, question
from mcpfleet.contracts.call import LACKING, FrameKind
from tests.unit.worker.bench import Bench, app_of, bench, text_of

FORMS: dict[str, Any] = {"elicitation": {}}
ALL: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}
YES = {"action": "accept"}
ASKS = {"elicitation.form"}


class Name(BaseModel):
    name: str


class Month(BaseModel):
    number: int


def filled(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", Name, key="user_name")
    return f"Hello, {answer.name}!"


async def through_rounds(runs: Bench, tool: str, answers: list[dict[str, Any]], **options: Any) -> Any:
    """Answer each round as a client does, and read the result."""
    asked = await runs.asks(tool, capabilities=ALL, **options)
    for answer in answers[:-1]:
        asked = await runs.asks(tool, capabilities=ALL, answers=answer, memory=asked["memory"], **options)
    return await runs.call(tool, capabilities=ALL, answers=answers[-1], memory=asked["memory"], **options)


@pytest.mark.rule("M50")
async def test_a_question_without_an_answer_ends_the_run() -> None:
    async with bench(app_of(greet, asks=ASKS)) as runs:
        asked = await runs.asks("greet", capabilities=FORMS)
    assert asked["inputRequests"] == {
        "user_name": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Who are you?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        }
    }
    assert asked["memory"] == {"answers": {}, "steps": {}}


@pytest.mark.rule("M50")
async def test_the_handler_runs_again_with_the_answer() -> None:
    async with bench(app_of(greet, asks=ASKS)) as runs:
        result = await through_rounds(runs, "greet", [{"user_name": filled(name="Ann")}])
    assert text_of(result) == "Hello, Ann!"


@pytest.mark.rule("M51")
async def test_an_answer_counts_without_memory_and_unknown_ones_are_ignored() -> None:
    answers = {"other": 5, "user_name": filled(name="Ann"), "more": filled(x=1)}
    async with bench(app_of(greet, asks=ASKS)) as runs:
        assert text_of(await runs.call("greet", capabilities=FORMS, answers=answers)) == "Hello, Ann!"


@pytest.mark.rule("M51", "M55")
@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"wrong": filled(name="Ann")},
        {"user_name": 12345},
        {"user_name": None},
        {"user_name": {"action": "accept"}},
        {"user_name": {"action": "perhaps", "content": {"name": "Ann"}}},
        {"user_name": filled(name=5)},
        {"user_name": filled(other="Ann")},
    ],
)
async def test_a_missing_or_bad_answer_is_asked_for_again(answers: dict[str, Any]) -> None:
    async with bench(app_of(greet, asks=ASKS)) as runs:
        asked = await runs.asks("greet", capabilities=FORMS, answers=answers)
    assert list(asked["inputRequests"]) == ["user_name"]


async def twice(ctx: Context) -> str:
    name = await ctx.elicit("Who?", Name, key="step1")
    month = await ctx.elicit("When?", Month, key="step2")
    return f"{name.name} {month.number}"


@pytest.mark.rule("M50")
async def test_later_rounds_remember_the_answers_of_earlier_ones() -> None:
    async with bench(app_of(twice, asks=ASKS)) as runs:
        result = await through_rounds(runs, "twice", [{"step1": filled(name="Ann")}, {"step2": filled(number=7)}])
    assert text_of(result) == "Ann 7"


async def at_once(ctx: Context) -> str:
    name, month, words, roots, _ = await ctx.ask(
        question.form("Who?", Name, key="name"),
        question.form("When?", Month, key="month"),
        question.sample(["Say something"], max_tokens=5, system_prompt="Be short.", key="words"),
        question.roots(key="roots"),
        question.url("Pay", "https://pay.example.com/", key="pay"),
    )
    said = words.content_as_list[0]
    return f"{name.name} {month.number} {said.text} {roots[0].uri}"


@pytest.mark.rule("M50")
async def test_several_questions_make_one_round_and_only_the_open_ones_are_asked_again() -> None:
    asks = {"elicitation.form", "elicitation.url", "sampling", "roots"}
    async with bench(app_of(at_once, asks=asks)) as runs:
        asked = await runs.asks("at_once", capabilities=ALL)
        assert {key: each["method"] for key, each in asked["inputRequests"].items()} == {
            "name": "elicitation/create",
            "month": "elicitation/create",
            "words": "sampling/createMessage",
            "roots": "roots/list",
            "pay": "elicitation/create",
        }
        assert asked["inputRequests"]["words"]["params"] == {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Say something"}}],
            "maxTokens": 5,
            "systemPrompt": "Be short.",
        }
        assert asked["inputRequests"]["pay"]["params"] == {
            "mode": "url",
            "message": "Pay",
            "url": "https://pay.example.com/",
        }
        part = {"name": filled(name="Ann"), "pay": YES, "month": filled(number="x")}
        asked = await runs.asks("at_once", capabilities=ALL, answers=part, memory=asked["memory"])
        assert list(asked["inputRequests"]) == ["month", "words", "roots"]
        rest = {
            "month": filled(number=7),
            "words": {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "m"},
            "roots": {"roots": [{"uri": "file:///srv"}]},
        }
        result = await runs.call("at_once", capabilities=ALL, answers=rest, memory=asked["memory"])
    assert text_of(result) == "Ann 7 Hi file:///srv"


async def unnamed(ctx: Context) -> str:
    first = await ctx.elicit("One?", Name)
    second = await ctx.elicit("Two?", Name)
    return first.name + second.name


@pytest.mark.rule("M50")
async def test_questions_without_a_key_are_named_by_method_and_order() -> None:
    async with bench(app_of(unnamed, asks=ASKS)) as runs:
        answers = [{"elicitation-1": filled(name="a")}, {"elicitation-2": filled(name="b")}]
        assert text_of(await through_rounds(runs, "unnamed", answers)) == "ab"


@pytest.mark.rule("M55")
@pytest.mark.parametrize(("action", "words"), [("decline", "declined"), ("cancel", "dismissed")])
async def test_a_user_who_would_not_answer_ends_the_tool_with_words(action: str, words: str) -> None:
    async with bench(app_of(greet, asks=ASKS)) as runs:
        result = await runs.call("greet", capabilities=FORMS, answers={"user_name": {"action": action}})
    assert result["isError"] is True
    assert words in text_of(result)
    assert "Who are you?" in text_of(result)


@pytest.mark.rule("M55")
async def test_a_handler_may_go_on_without_an_answer() -> None:
    async def ask(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", Name, key="name")
        except Declined as declined:
            return declined.action
        return "answered"

    async with bench(app_of(ask, asks=ASKS)) as runs:
        result = await runs.call("ask", capabilities=FORMS, answers={"name": {"action": "cancel"}})
    assert text_of(result) == "cancel"


async def test_a_plain_function_asks_by_ctx_sync() -> None:
    def ask(ctx: Context) -> str:
        number = ctx.sync.step("add", lambda left, right: left + right, 1, 2)
        name = ctx.sync.elicit("Who?", Name, key="name")
        return f"{name.name} {number}"

    async with bench(app_of(ask, asks=ASKS)) as runs:
        assert text_of(await through_rounds(runs, "ask", [{"name": filled(name="Ann")}])) == "Ann 3"


@pytest.mark.rule("M50")
async def test_neither_except_exception_nor_a_task_group_holds_a_question_up() -> None:
    async def careful(ctx: Context) -> str:
        async def ask() -> None:
            try:
                await ctx.elicit("Who?", Name, key="name")
            except Exception:
                raise RuntimeError("held up") from None

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
        return "done"

    async with bench(app_of(careful, asks=ASKS)) as runs:
        assert list((await runs.asks("careful", capabilities=FORMS))["inputRequests"]) == ["name"]


@pytest.mark.rule("M50")
async def test_a_handler_that_swallows_a_question_has_ended_nonetheless() -> None:
    async def stubborn(ctx: Context) -> str:
        try:
            await ctx.elicit("Who?", Name, key="name")
        except BaseException:  # what no handler should do
            return "as if nothing had happened"
        return "answered"

    async with bench(app_of(stubborn, asks=ASKS)) as runs:
        assert list((await runs.asks("stubborn", capabilities=FORMS))["inputRequests"]) == ["name"]


# -- what may be asked ------------------------------------------------------------------------------------------------


async def greet_by_another(ctx: Context) -> str:
    return await greet(ctx)


@pytest.mark.rule("D16")
async def test_a_question_that_the_own_code_shows_needs_no_declaration() -> None:
    async with bench(app_of(greet)) as runs:
        result = await through_rounds(runs, "greet", [{"user_name": filled(name="Ann")}])
    assert text_of(result) == "Hello, Ann!"


@pytest.mark.rule("D16")
async def test_an_undeclared_question_is_an_error_that_names_it() -> None:
    async with bench(app_of(greet_by_another)) as runs:
        result = await runs.call("greet_by_another", capabilities=ALL)
        [line] = [line for line in runs.log.entries if line["log_level"] == "error"]
    assert result["isError"] is True
    assert isinstance(line["exc_info"], AskError)
    assert "asks={'elicitation.form'}" in str(line["exc_info"])
    async with bench(app_of(greet_by_another, asks={"roots"})) as runs:
        await runs.call("greet_by_another", capabilities=ALL)
        [line] = [line for line in runs.log.entries if line["log_level"] == "error"]
    assert "asks={'elicitation.form'}" in str(line["exc_info"])
    assert "runs again from its top" in str(line["exc_info"])


@pytest.mark.rule("D16")
async def test_a_client_that_cannot_answer_is_told_what_it_lacks() -> None:
    async with bench(app_of(greet, may_ask=ASKS)) as runs:
        error, line = await runs.error("greet", capabilities={"elicitation": {"url": {}}})
    assert line == f"{LACKING} elicitation.form"
    assert error["code"] == -32021


@pytest.mark.rule("D16")
async def test_a_handler_can_tell_what_may_be_asked_or_catch_it() -> None:
    async def look(ctx: Context) -> str:
        try:
            await ctx.roots()
        except ClientLacks as lacks:
            caught = lacks.names
        return f"{[name for name in ('sampling', 'roots', 'elicitation.form') if ctx.can_ask(name)]} {caught}"

    async with bench(app_of(look, may_ask={"sampling", "roots"})) as runs:
        assert text_of(await runs.call("look", capabilities={"sampling": {}, "elicitation": {}})) == (
            "['sampling'] ('roots',)"
        )


async def test_two_questions_of_one_key_are_an_error() -> None:
    async def confused(ctx: Context) -> None:
        await ctx.ask(question.form("a", Name, key="k"), question.form("b", Name, key="k"))

    async with bench(app_of(confused, asks=ASKS)) as runs:
        assert (await runs.call("confused", capabilities=FORMS))["isError"] is True
        assert "'k'" in str(runs.log.entries[-1]["exc_info"])


@pytest.mark.rule("M56")
@pytest.mark.parametrize("address", ["http://example.com/", "https://ann:secret@example.com/", "/pay", "ftp://x/"])
def test_a_page_that_no_user_should_open_is_refused(address: str) -> None:
    with pytest.raises(AskError):
        question.url("Pay", address)


@pytest.mark.rule("M56")
@pytest.mark.parametrize("address", ["https://example.com/pay", "http://localhost:8080/", "http://127.0.0.1/"])
def test_a_page_is_https_or_on_this_machine(address: str) -> None:
    assert question.url("Pay", address).params["url"] == address


def said(role: Any, *content: dict[str, Any]) -> SamplingMessage:
    return SamplingMessage.model_validate({"role": role, "content": list(content)})


USE = {"type": "tool_use", "id": "1", "name": "x", "input": {}}
RESULT = {"type": "tool_result", "toolUseId": "1", "content": []}
TEXT = {"type": "text", "text": "x"}


@pytest.mark.rule("M57")
@pytest.mark.parametrize(
    "messages",
    [
        [said("user", RESULT)],
        [said("assistant", USE)],
        [said("assistant", USE), said("user", TEXT)],
        [said("assistant", USE), said("user", RESULT, TEXT)],
        [said("assistant", USE), said("assistant", RESULT)],
        [said("user", USE), said("user", RESULT)],
    ],
)
def test_each_use_of_a_tool_is_followed_by_its_result_alone(messages: list[SamplingMessage]) -> None:
    with pytest.raises(AskError):
        question.sample(messages, max_tokens=5)
    question.sample([said("assistant", TEXT, USE), said("user", RESULT)], max_tokens=5)


async def test_questions_larger_than_their_limit_are_an_error_that_names_the_setting() -> None:
    async def ask(ctx: Context) -> None:
        await ctx.elicit("x" * 2000, Name, key="name")

    async with bench(app_of(ask, asks=ASKS), ask_limit=1000) as runs:
        error, _ = await runs.error("ask", capabilities=FORMS)
        assert error["code"] == -32603
        assert "MCPFLEET_ASK_LIMIT" in runs.log.entries[-1]["error"]


async def test_a_question_ends_a_run_whose_client_is_told_no_error() -> None:
    async with bench(app_of(greet, asks=ASKS)) as runs:
        end = await runs.end(runs.start("greet", capabilities=FORMS))
        assert (end.kind, end.header) == (FrameKind.ASK, None)
        assert runs.log.entries == []


# -- what a test of an application uses -------------------------------------------------------------------------------


async def test_a_test_answers_beforehand() -> None:
    answers = Answers(user_name=Name(name="Ann"))
    assert await greet(Context(asker=answers)) == "Hello, Ann!"
    assert [each.key for each in answers.asked] == ["user_name"]
    with pytest.raises(Declined):
        await greet(Context(asker=Answers(user_name="decline")))
    with pytest.raises(ClientLacks):
        await greet(Context(asker=Answers()))
    with pytest.raises(AskError):
        await greet(Context())
