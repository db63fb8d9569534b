"""`mcpfleet call`, `list`, `read`, `prompt`, `complete` and `tasks`, as people and scripts use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from mcpfleet.testing.fleet import Fleet
from tests.kit.commands import cpu, mcpfleet
from tests.kit.terminal import TypedCommand, typed

APP = Path(__file__).with_name("shop_app.py")
TIMES_THE_CLIENT = 2.0
"""The CPU time of a call or a read, beside that of importing the official client."""
BUY = "buy(item: int, before: date | None = None, tags: list[str] | None = None)"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """An edge of a fleet that all tests here may use."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Fleet(APP)) as fleet:
        yield fleet.urls[0]


async def test_a_call_and_a_read_cost_little_beside_the_import_of_the_official_client(url: str) -> None:
    """Both are rounds of the same machine: what slows one slows the other, and the best of several is its own cost."""
    commands = {"call": ("call", url, "picture", "--json"), "read": ("read", url, "shop://terms")}
    client, spent = inf, dict.fromkeys(commands, inf)
    for _ in range(4):
        client = min(client, await anyio.to_thread.run_sync(cpu, "-c", "from mcp import Client"))
        for name, words in commands.items():
            spent[name] = min(spent[name], await anyio.to_thread.run_sync(cpu, "-m", "mcpfleet.cli", *words))
        if max(spent.values()) <= TIMES_THE_CLIENT * client:
            return
    pytest.fail(f"{spent} s, and the client's import {client} s")


async def fill_in(command: TypedCommand) -> None:
    """Type what a delivery needs."""
    await command.type("  city: ", "Oslo")
    await command.type("  size: ", "2")
    await command.type("  count [1]: ", "")
    await command.type("  gift [no]: ", "yes")


async def test_a_person_is_asked_field_by_field_and_again_after_a_mistake(url: str) -> None:
    with typed("call", url, "buy", "item=3") as command:
        assert "Where shall it go?" in await command.type("  city: ", "O")
        assert 'city is not valid: "O" is shorter' in await command.type("  city: ", "")
        assert "city is required" in await command.type("  city: ", "Oslo")
        assert "1  small\n    2  large" in await command.type("  size: ", "huge")
        assert "size is not one of small, large" in await command.type("  size: ", "2")
        await command.type("  count [1]: ", "")
        await command.type("  gift [no]: ", "yes")
        assert (await command.ended(), "1 large 3 to Oslo" in command.said) == (0, True), command.said


async def test_a_report_steers_no_terminal_and_breaks_no_bar(url: str) -> None:
    with typed("call", url, "shout", TERM="xterm") as command:
        assert (await command.ended(), "shouted" in command.said) == (0, True), command.said
    assert "loud" in command.said
    assert "\x1b]0;" not in command.said


@pytest.mark.parametrize(
    ("keys", "action"), [(b"/decline\n", "declined"), (b"/cancel\n", "dismissed"), (b"\x04", "dismissed")]
)
async def test_a_person_may_decline_or_cancel(url: str, keys: bytes, action: str) -> None:
    with typed("call", url, "buy", "item=3") as command:
        await command.press("  city: ", keys)
        assert await command.ended() == 1
        assert action in command.said


async def test_two_questions_of_one_round_are_asked_one_after_another(url: str) -> None:
    with typed("call", url, "gift") as command:
        heard = await command.until("refuses to answer)")
        if "card say" in heard:
            await command.type("words [no words]: ", "Hello")
            await fill_in(command)
        else:
            await fill_in(command)
            await command.type("words [no words]: ", "Hello")
        assert (await command.ended(), "Oslo: Hello" in command.said) == (0, True), command.said


async def test_a_page_is_shown_and_opened_only_when_a_person_says_so(url: str, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path / "opened"}\n')
    browser.chmod(0o700)
    with typed("call", url, "pay", BROWSER=f"{browser} %s") as command:
        shown = await command.type("[c]ancel: ", "y")
        assert "page: https://pay.example.com/1\n  site: pay.example.com" in shown
        assert (await command.ended(), "paid" in command.said) == (0, True), command.said
    assert (tmp_path / "opened").read_text() == "https://pay.example.com/1\n"


async def test_a_script_answers_by_options(url: str) -> None:
    answers = ["--answer", "city=Oslo", "--answer", "delivery.size=large", "--answer", "colour=red"]
    done = await mcpfleet("call", url, "buy", "item=3", "before=2026-01-02", "tags=a", "tags=b", *answers)
    assert json.loads(done.stdout) == ["1 large 3 to Oslo", "gift: False", "before: 2026-01-02", "a", "b"]
    assert (done.returncode, done.stderr) == (0, "no question asked for --answer colour\n")
    declined = await mcpfleet("call", url, "gift", "--answer", "*=decline")
    assert (declined.returncode, declined.stdout, "declined" in declined.stderr) == (1, "", True)
    paid = await mcpfleet("call", url, "pay", "--answer", "page=accept")
    assert (paid.returncode, paid.stdout) == (0, "paid\n")


async def test_without_a_terminal_and_an_answer_the_option_and_the_fields_are_named(url: str) -> None:
    done = await mcpfleet("call", url, "buy", "item=3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --answer city=… (text, required, at least 2 characters) --answer size=… (small, large" in done.stderr
    wrong = await mcpfleet("call", url, "buy", "item=3", "--answer", "city=O")
    assert (wrong.returncode, wrong.stderr.startswith("--answer city: is not valid")) == (2, True)


async def test_a_model_that_a_tool_asks_is_refused_with_a_sentence(url: str) -> None:
    done = await mcpfleet("call", url, "think")
    assert (done.returncode, "this command has no model" in done.stderr) == (1, True), done.stderr


async def test_a_wrong_argument_is_told_before_the_call_with_the_signature(url: str) -> None:
    unknown = await mcpfleet("call", url, "buy", "itm=3")
    assert unknown.stderr.splitlines() == [
        "itm: there is no such argument; did you mean item?", "item: is required", f"usage: {BUY}"
    ]  # fmt: skip
    wrong = await mcpfleet("call", url, "buy", "item=three", "before=soon")
    assert wrong.stderr.splitlines()[:2] == [
        "item: is not an integer",
        'before: is not valid: "soon" is not a "date", such as 2026-01-31',
    ]
    assert unknown.returncode == wrong.returncode == 2
    tool = await mcpfleet("call", url, "bu")
    assert (tool.returncode, "did you mean buy?" in tool.stderr) == (1, True)


async def test_an_endpoint_is_listed_for_people_and_for_programs(url: str) -> None:
    shown = (await mcpfleet("list", url)).stdout
    assert f"tools:\n  {BUY}\n      Buy something.\n" in shown
    listed = json.loads((await mcpfleet("list", url, "--json")).stdout)
    assert {"tools", "resources", "resourceTemplates", "prompts"} == listed.keys()
    one = (await mcpfleet("list", url, "buy")).stdout
    assert "  item: int, required\n  before: date | None, default null" in one
    assert json.loads((await mcpfleet("list", url, "buy", "--json")).stdout)["name"] == "buy"
    missing = await mcpfleet("list", url, "bui")
    assert (missing.returncode, "did you mean buy?" in missing.stderr) == (2, True)


async def test_resources_prompts_and_completions_are_printed(url: str) -> None:
    assert (await mcpfleet("read", url, "shop://terms")).stdout == "Pay first.\nNo returns.\n"
    assert (await mcpfleet("prompt", url, "review", "title=5")).stdout == "user:\nReview 5, be kind.\n"
    assert (await mcpfleet("complete", url, "prompt", "review", "tone=k")).stdout == "kind\nkeen\n"
    wrong = await mcpfleet("prompt", url, "review", "titel=5")
    assert (wrong.returncode, "did you mean title?" in wrong.stderr) == (2, True)
    unknown = await mcpfleet("read", url, "shop://term")
    assert (unknown.returncode, "shop://term; did you mean shop://terms?" in unknown.stderr) == (1, True)
    other = await mcpfleet("complete", url, "prompt", "review", "ton=k")
    assert (other.returncode, "review has no argument 'ton'; did you mean tone?" in other.stderr) == (1, True)
    none = await mcpfleet("complete", url, "prompt", "reviews", "tone=k")
    assert (none.returncode, "there is no prompt 'reviews'; did you mean review?" in none.stderr) == (1, True)


async def test_a_call_that_asks_is_no_task_and_the_other_command_is_named(url: str) -> None:
    started = await mcpfleet("tasks", "start", url, "buy", "item=3")
    assert (started.returncode, started.stdout) == (1, "")
    assert "buy made no task: the call asks for " in started.stderr
    assert "use `mcpfleet call`" in started.stderr


async def test_a_picture_is_a_line_and_is_saved_where_it_is_asked_for(url: str, tmp_path: Path) -> None:
    shown = await mcpfleet("call", url, "picture")
    assert shown.stdout == "[image of type image/png, 3 bytes]\n"
    file = tmp_path / "picture.png"
    await mcpfleet("call", url, "picture", "--out", str(file))
    assert file.read_bytes() == b"\0\0\0"


async def test_a_failure_of_a_tool_is_apart_from_output(url: str) -> None:
    done = await mcpfleet("call", url, "fail")
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "sold out\n")


async def test_a_url_without_a_path_is_tried_with_the_usual_one(url: str) -> None:
    bare = url.removesuffix("/mcp")
    assert (await mcpfleet("read", bare, "shop://terms")).returncode == 0
    assert (await mcpfleet("tasks", "start", bare, "statement", "account=7")).returncode == 0
    other = await mcpfleet("read", f"{bare}/other", "shop://terms")
    assert (other.returncode, "/other is not an endpoint (404)" in other.stderr) == (1, True)


async def test_a_watched_task_asks_in_the_terminal_and_shows_the_command_that_answers(url: str) -> None:
    task = (await mcpfleet("tasks", "start", url, "statement", "account=7")).stdout.strip()
    with typed("tasks", "watch", url, task) as command:
        assert f"answer: mcpfleet tasks answer {url} {task} delivery city=… size=…" in await command.until("--decline")
        await fill_in(command)
        assert (await command.ended(), "7 to Oslo" in command.said) == (0, True), command.said


async def test_a_watching_person_is_freed_when_somebody_else_answers(url: str) -> None:
    task = (await mcpfleet("tasks", "start", url, "statement", "account=7")).stdout.strip()
    with typed("tasks", "watch", url, task) as command:
        await command.until("  city: ")
        wrong = await mcpfleet("tasks", "answer", url, task, "delivery", "city=Rome", "sise=small")
        assert (wrong.returncode, "did you mean size?" in wrong.stderr) == (2, True), wrong.stderr
        answered = await mcpfleet("tasks", "answer", url, task, "delivery", "city=Rome", "size=small")
        assert answered.returncode == 0, answered.stderr
        assert (await command.ended(), "7 to Rome" in command.said) == (0, True), command.said


async def test_a_task_is_answered_in_the_terminal_where_no_fields_are_given(url: str) -> None:
    task = (await mcpfleet("tasks", "start", url, "statement", "account=7")).stdout.strip()
    with typed("tasks", "watch", url, task, "--json") as watching:
        question = await mcpfleet("tasks", "answer", url, task, "deliver", "city=Oslo")
        assert question.returncode in {1, 2}
        with typed("tasks", "answer", url, task, "delivery") as command:
            await fill_in(command)
            assert await command.ended() == 0, command.said
        assert await watching.ended() == 0
        assert '"status": "completed"' in watching.said


@pytest.mark.rule("M6")
async def test_a_task_sends_the_headers_that_its_tool_declares(url: str) -> None:
    """An edge refuses the call without them."""
    for command in ("call", "tasks start"):
        shipped = await mcpfleet(*command.split(), url, "ship", "region=Östland")
        assert (shipped.returncode, shipped.stdout.strip()) == (0, "shipped to Östland"), shipped.stderr
