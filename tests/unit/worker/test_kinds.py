"""Resources, prompts, completers and lists on a worker: their results, and how each kind fails."""

from __future__ import annotations

from typing import Any

import pytest

from mcpfleet.app import App, Context, InvalidArguments, Invocation, NotFound, ProtocolError, Resource, ToolError
from mcpfleet.app.handler import CallNext
from mcpfleet.contracts.call import AUTHORED_ERROR, BAD_PARAMS, NOT_FOUND, Completing
from mcpfleet.wire.reply import RESULT_HEAD
from tests.unit.worker.bench import bench, text_of

BOOK = "library://books/{book}"


def library() -> App:
    app = App("test", version="1")

    @app.resource("library://books")
    async def books() -> str:
        return "all"

    @app.resource(BOOK)
    def book(book: int) -> str | None:
        return {1: "Emma"}.get(book)

    @app.prompt()
    async def review(title: str, words: int = 100) -> str:
        return f"{title} {words}"

    @app.completion(review, "title")
    async def titles(typed: str) -> list[str]:
        return [typed + "a"]

    @app.resources()
    async def shelf(cursor: str | None = None) -> list[Resource]:
        return [Resource(uri=f"library://books/{cursor or 0}", name="b")]

    return app


@pytest.mark.rule("M18")
async def test_every_result_is_complete_and_begins_as_the_edge_splices_it() -> None:
    async with bench(library()) as runs:
        end = await runs.end(runs.start("library://books", uri="library://books"))
        assert end.body.startswith(RESULT_HEAD)
        assert await runs.call("library://books", uri="library://books") == {
            "_meta": {},
            "resultType": "complete",
            "contents": [{"uri": "library://books", "mimeType": "text/plain", "text": "all"}],
        }
        assert (await runs.call(BOOK, uri="library://books/1"))["contents"][0]["text"] == "Emma"
        assert (await runs.call("review", {"title": "Emma", "words": "7"}))["messages"] == [
            {"role": "user", "content": {"type": "text", "text": "Emma 7"}}
        ]
        assert (await runs.call("review", completing=Completing("title", "Emm")))["completion"] == {"values": ["Emma"]}
        assert (await runs.call("shelf", cursor="7"))["resources"] == [{"uri": "library://books/7", "name": "b"}]


@pytest.mark.rule("M42")
@pytest.mark.parametrize("uri", ["library://books/2", "library://books/one"])
async def test_a_missing_resource_is_not_found(uri: str) -> None:
    async with bench(library()) as runs:
        error, line = await runs.error(BOOK, uri=uri)
        assert (error["code"], line) == (-32602, NOT_FOUND)
        assert runs.log.entries == []


@pytest.mark.rule("M41")
async def test_bad_arguments_of_a_prompt_are_named_without_their_values() -> None:
    async with bench(library()) as runs:
        error, line = await runs.error("review", {"words": "secret"})
    assert (error["code"], line) == (-32602, BAD_PARAMS)
    assert "title: is required" in error["message"]
    assert "secret" not in error["message"]


@pytest.mark.rule("M48")
async def test_an_argument_without_completer_is_a_bad_parameter() -> None:
    async with bench(library()) as runs:
        assert (await runs.error("review", completing=Completing("words", "")))[1] == BAD_PARAMS


def failing(error: Exception) -> App:
    app = App("test", version="1")

    @app.prompt()
    async def prompt(x: str = "") -> str:
        raise error

    @app.completion(prompt, "x")
    async def values(typed: str) -> list[str]:
        raise error

    @app.resource("library://books")
    def resource() -> str:
        raise error

    @app.resources()
    async def shelf() -> list[Resource]:
        raise error

    return app


KINDS: list[tuple[str, dict[str, Any]]] = [
    ("prompt", {}),
    ("prompt", {"completing": Completing("x", "")}),
    ("library://books", {"uri": "library://books"}),
    ("shelf", {}),
]


@pytest.mark.rule("D3")
@pytest.mark.parametrize(("name", "asked"), KINDS)
async def test_an_exception_is_an_internal_error_with_a_reference(name: str, asked: dict[str, Any]) -> None:
    async with bench(failing(RuntimeError("the secret"))) as runs:
        held = runs.start(name, **asked)
        end = await runs.end(held)
        [line] = [line for line in runs.log.entries if line["log_level"] == "error"]
    assert b'"code":-32603' in end.body
    assert held.trace.trace_id.encode() in end.body
    assert b"secret" not in end.body
    assert end.header is None
    assert isinstance(line["exc_info"], RuntimeError)


@pytest.mark.rule("M24")
@pytest.mark.parametrize(("name", "asked"), KINDS)
async def test_a_deliberate_error_is_an_authored_one_of_every_kind(name: str, asked: dict[str, Any]) -> None:
    async with bench(failing(ProtocolError(7, "Not now."))) as runs:
        assert await runs.error(name, **asked) == ({"code": 7, "message": "Not now."}, AUTHORED_ERROR)


async def test_a_prompts_tool_error_is_the_text_of_its_error() -> None:
    async with bench(failing(ToolError("No title \udcff."))) as runs:
        error, line = await runs.error("prompt")
    assert (error, line) == ({"code": -32603, "message": "No title ?."}, None)


@pytest.mark.rule("M42")
async def test_a_handler_may_say_that_nothing_is_there() -> None:
    async with bench(failing(NotFound())) as runs:
        assert (await runs.error("library://books", uri="library://books"))[1] == NOT_FOUND
        assert (await runs.error("prompt"))[0]["code"] == -32603


@pytest.mark.rule("M59")
async def test_a_prompt_that_takes_too_long_is_an_error() -> None:
    app = App("test", version="1")

    @app.prompt(timeout=0.05)
    async def prompt() -> str:
        import anyio

        await anyio.sleep(5)
        return ""

    async with bench(app) as runs:
        assert "did not finish" in (await runs.error("prompt"))[0]["message"]


@pytest.mark.rule("M50")
async def test_prompts_and_resources_ask_too() -> None:
    app = App("test", version="1")

    async def roots(ctx: Context) -> str:
        return str((await ctx.roots(key="r"))[0].uri)

    app.prompt("prompt", asks={"roots"})(roots)
    app.resource("library://books", asks={"roots"})(roots)
    answers = {"r": {"roots": [{"uri": "file:///srv"}]}}
    async with bench(app) as runs:
        for name in ("prompt", "library://books"):
            assert list((await runs.asks(name, uri=name, capabilities={"roots": {}}))["inputRequests"]) == ["r"]
        result = await runs.call("prompt", capabilities={"roots": {}}, answers=answers)
    assert result["messages"][0]["content"]["text"] == "file:///srv"


# -- around a handler -------------------------------------------------------------------------------------------------


async def test_interceptors_stand_around_every_handler_in_their_order() -> None:
    app, seen = library(), list[str]()

    @app.tool()
    async def add(left: int, right: int) -> int:
        return left + right

    @app.interceptor
    async def outer(invocation: Invocation, call_next: CallNext) -> Any:
        seen.append(f"{invocation.kind} {invocation.name} {invocation.arguments} {invocation.uri}")
        value = await call_next(invocation)
        seen.append(f"gave {value!r}")
        return value

    @app.interceptor
    async def inner(invocation: Invocation, call_next: CallNext) -> Any:
        seen.append(f"inner {invocation.ctx.principal.subject}")
        return await call_next(invocation)

    async with bench(app) as runs:
        assert (await runs.call("add", {"left": 1, "right": 2}))["structuredContent"] == 3
        await runs.call(BOOK, uri="library://books/1")
        await runs.call("review", completing=Completing("title", "x"))
    assert seen == [
        "tool add {'left': 1, 'right': 2} None",
        "inner None",
        "gave 3",
        f"template {BOOK} {{}} library://books/1",
        "inner None",
        "gave 'Emma'",
        "completion review {} None",
        "inner None",
        "gave {'values': ['xa']}",
    ]


async def test_an_interceptor_may_refuse_change_and_see_bad_arguments() -> None:
    app = App("test", version="1")

    @app.tool()
    async def add(left: int, right: int = 0) -> int:
        return left + right

    @app.interceptor
    async def guard(invocation: Invocation, call_next: CallNext) -> Any:
        if invocation.arguments.get("left") == 13:
            raise ToolError("Not thirteen.")
        try:
            return await call_next(invocation)
        except InvalidArguments:
            return 0

    async with bench(app) as runs:
        assert text_of(await runs.call("add", {"left": 13})) == "Not thirteen."
        assert (await runs.call("add", {"left": "x"}))["structuredContent"] == 0


@pytest.mark.rule("M40")
async def test_a_sanitizer_decides_what_its_caller_sees_before_the_schema_is_checked() -> None:
    app = App("test", version="1")

    async def hide(found: list[int], ctx: Context) -> list[int]:
        return [each for each in found if each < 5 or ctx.principal.subject]

    @app.tool(sanitize=hide)
    async def numbers() -> list[int]:
        return [1, 9]

    assert app.tools["numbers"].definition.per_caller
    async with bench(app) as runs:
        result = await runs.call("numbers")
    assert result["structuredContent"] == [1]
    assert text_of(result) == "[1]"


@pytest.mark.rule("M40")
@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("\x1b[31mred\x1b[0m", "[31mred[0m"),
        ("a\tb\nc\r\nd", "a\tb\nc\r\nd"),
        ("hidden\rshown", "hiddenshown"),
        ("\x00\x07\x08\x0c\x7f\x9b2J", "2J"),
        ("£ é ☃ \u2028\u2029\x85", "£ é ☃ \u2028\u2029\x85"),
    ],
)
async def test_control_characters_are_taken_out_of_texts(said: str, read: str) -> None:
    async def speak(error: bool) -> str:
        if error:
            raise ToolError(said)
        return said

    app = App("test", version="1")
    app.tool()(speak)
    raw = App("test", version="1", clean=None)
    raw.tool()(speak)
    loud = App("test", version="1", clean=str.upper)
    loud.tool()(speak)
    async with bench(app) as runs:
        assert text_of(await runs.call("speak", {"error": False})) == read
        assert text_of(await runs.call("speak", {"error": True})) == read
    async with bench(raw) as runs:
        assert text_of(await runs.call("speak", {"error": False})) == said
    async with bench(loud) as runs:
        assert text_of(await runs.call("speak", {"error": False})) == said.upper()


async def test_a_tool_error_with_a_lone_surrogate_is_read_by_the_model_nonetheless() -> None:
    app = App("test", version="1")

    @app.tool()
    async def fail() -> None:
        raise ToolError("file \udcff is not there")

    async with bench(app) as runs:
        assert text_of(await runs.call("fail")) == "file ? is not there"


# -- the client's log -------------------------------------------------------------------------------------------------


async def speaking(ctx: Context) -> str:
    await ctx.log("debug", "quiet")
    await ctx.log("warning", {"shelf": 1}, logger="stock")
    await ctx.log("emergency", "loud")
    return "said"


@pytest.mark.rule("M49")
@pytest.mark.parametrize(
    ("least", "levels"),
    [("debug", ["debug", "warning", "emergency"]), ("warning", ["warning", "emergency"]), (None, []), ("odd", [])],
)
async def test_a_message_is_sent_to_clients_that_want_its_level(least: str | None, levels: list[str]) -> None:
    app = App("test", version="1")
    app.tool()(speaking)
    async with bench(app) as runs:
        held = runs.start("speaking", log_level=least)
        await runs.end(held)
        logs = runs.logs(held)
    assert [each["level"] for each in logs] == levels
    if "warning" in levels:
        assert {"level": "warning", "logger": "stock", "data": {"shelf": 1}} in logs


@pytest.mark.rule("M49")
async def test_a_call_sends_so_many_messages_a_second() -> None:
    app = App("test", version="1")

    @app.tool()
    async def chatter(ctx: Context) -> None:
        for number in range(100):
            await ctx.log("info", number)

    async with bench(app, log_rate=5) as runs:
        held = runs.start("chatter", log_level="info")
        await runs.end(held)
        assert [each["data"] for each in runs.logs(held)][:5] == [0, 1, 2, 3, 4]
        assert len(runs.logs(held)) < 20


@pytest.mark.rule("M49")
async def test_an_unknown_level_is_the_authors_mistake() -> None:
    app = App("test", version="1")

    @app.tool()
    async def odd(ctx: Context) -> None:
        await ctx.log("loud", "x")  # type: ignore[arg-type]

    async with bench(app) as runs:
        assert (await runs.call("odd"))["isError"] is True
