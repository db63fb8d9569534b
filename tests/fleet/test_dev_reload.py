"""Hot reload under `mcpfleet dev`: the working version serves until the changed one is ready, and no call is lost."""

from __future__ import annotations

from pathlib import Path

import anyio
from mcp import Client
from mcp_types import CallToolResult

from tests.fleet.test_dev import HOLDING, held
from tests.kit.commands import mcpfleet
from tests.kit.dev_terminal import WITHIN, Terminal, dev
from tests.kit.waiting import until


async def test_a_changed_file_is_served_and_a_mistake_in_it_keeps_the_former_version(tmp_path: Path) -> None:
    """The changed module is one that the application imports; its mistake is a line with its place."""
    application, module = tmp_path / "shop.py", tmp_path / "shelf" / "books.py"
    application.write_text("from shelf import books\n" + LIBRARY_LIKE.replace('"{answer}"', "books.ANSWER"))
    module.parent.mkdir()
    (module.parent / "__init__.py").touch()
    module.write_text("ANSWER = 'first'\n")
    with dev(application) as terminal:
        [url] = await terminal.ready(1)
        await terminal.say("try ")
        assert "first" in (await mcpfleet("call", url, "answer")).stdout
        module.write_text("ANSWER = 'second'\n")
        await terminal.say("books.py changed: the workers run the new version")
        await becomes(url, "second")
        module.write_text("\nANSWER = 'third\n")
        await terminal.say("the former version still serves")
        assert "second" in (await mcpfleet("call", url, "answer")).stdout
        [mistake] = [line for line in terminal.errors if "SyntaxError" in line]
        assert f"{module}:2: SyntaxError: unterminated string literal" in mistake
        module.write_text("ANSWER = 'third'\n")
        await until(lambda: sum("run the new version" in line for line in terminal.errors) == 2, within=WITHIN)
        await becomes(url, "third")


async def test_no_call_is_lost_while_workers_are_replaced_and_a_running_one_ends_where_it_began(tmp_path: Path) -> None:
    """Two workers; the tools themselves change too, so that the calls' definitions come and go."""
    application = tmp_path / "app.py"
    application.write_text(HOLDING + ANSWERING.format(version=0))
    results: list[CallToolResult] = []
    answers: list[object] = []
    is_over = anyio.Event()

    async def call_on(url: str) -> None:
        async with Client(url) as client:
            while not is_over.is_set():
                result = await client.call_tool("version", {})
                assert not result.is_error, result
                answers.append(result.structured_content)

    with dev(application, "--workers", 2) as terminal:
        [url] = await terminal.ready(1)
        await terminal.say("try ")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(held, url, tmp_path, results)
            tasks.start_soon(call_on, url)
            await until((tmp_path / "started").exists)
            for version in (1, 2):
                application.write_text(HOLDING.replace("Wait", f"({version}) Wait") + ANSWERING.format(version=version))
                await until(
                    lambda version=version: sum("run the new version" in line for line in terminal.errors) == version,  # type: ignore[misc]
                    within=WITHIN,
                )
            (tmp_path / "release").touch()
            await until(lambda: len(results) == 1, within=WITHIN)
            is_over.set()
        assert "released" in str(results[0].content)
    assert set(answers) == {0, 1, 2}


async def test_a_file_that_is_saved_ten_times_in_a_second_restarts_the_workers_seldom(tmp_path: Path) -> None:
    application = tmp_path / "shop.py"
    text = "print('imported', flush=True)\n" + LIBRARY_LIKE
    application.write_text(text.format(answer="first"))
    with dev(application) as terminal:
        [url] = await ready_after_prints(terminal)
        for number in range(10):
            application.write_text(text.format(answer=f"save {number}"))
            await anyio.sleep(0.08)
        await becomes(url, "save 9")
        assert 2 <= sum(line == "imported" for line in terminal.said) <= 4


async def ready_after_prints(terminal: Terminal) -> list[str]:
    """Wait for the URLs of a system whose application prints something itself."""
    await terminal.say("try ")
    await until(lambda: any(line.startswith("ready ") for line in terminal.said), within=WITHIN)  # on another pipe
    return [line.removeprefix("ready ") for line in terminal.said if line.startswith("ready ")]


async def test_a_package_that_is_made_while_dev_runs_is_watched_too(tmp_path: Path) -> None:
    """The application needs it first: that import fails, and succeeds once the package is there."""
    application = tmp_path / "shop.py"
    application.write_text(LIBRARY_LIKE.format(answer="first"))
    with dev(application) as terminal:
        [url] = await terminal.ready(1)
        await terminal.say("try ")
        application.write_text("from shelf import ANSWER\n" + LIBRARY_LIKE.replace('"{answer}"', "ANSWER"))
        await terminal.say("shop.py:1: no module 'shelf'")
        (tmp_path / "shelf").mkdir()
        (tmp_path / "shelf" / "__init__.py").write_text("ANSWER = 'second'\n")
        await becomes(url, "second")
        (tmp_path / "shelf" / "__init__.py").write_text("ANSWER = 'third'\n")
        await becomes(url, "third")


async def test_an_import_that_hangs_is_given_up_for_the_next_version(tmp_path: Path) -> None:
    application = tmp_path / "shop.py"
    application.write_text(LIBRARY_LIKE.format(answer="first"))
    with dev(application) as terminal:
        [url] = await terminal.ready(1)
        await terminal.say("try ")
        hanging = f"import pathlib, time\npathlib.Path({str(tmp_path / 'hangs')!r}).touch()\ntime.sleep(600)\n"
        application.write_text(hanging)
        await until((tmp_path / "hangs").exists, within=WITHIN)
        assert "first" in (await mcpfleet("call", url, "answer")).stdout
        application.write_text(LIBRARY_LIKE.format(answer="second"))
        await becomes(url, "second")


async def becomes(url: str, answer: str) -> None:
    """Wait until a tool answers so."""
    with anyio.fail_after(WITHIN):
        while answer not in (await mcpfleet("call", url, "answer")).stdout:
            pass


LIBRARY_LIKE = """
from mcpfleet.app import App

app = App("shop", version="1.0.0")


@app.tool()
async def answer() -> str:
    '''Answer.'''
    return "{answer}"
"""
ANSWERING = """

@app.tool()
async def version() -> int:
    '''Tell the version.'''
    return {version}
"""
