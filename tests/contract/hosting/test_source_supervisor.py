"""One source, without a fleet: its connections, its watches and its log."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from mcpfleet.process.auto_reset_event import AutoResetEvent
from mcpfleet.sources.source import Command, Source, Value
from mcpfleet.worker.hosting.child import Reaping
from mcpfleet.worker.hosting.source_supervisor import SourceSupervisor
from mcpfleet.worker.upstream import NotSent, UpstreamLost
from tests.contract.hosting.hosting_harness import SECRET, SERVER, source

NOBODY: Any = None
"""The context of a call, which tells sources apart by nothing yet."""


class Seen:
    """The changes that a source has told."""

    def __init__(self) -> None:
        self.changes = 0
        self.changed = AutoResetEvent()
        self.updated: list[str] = []
        self.is_updated = anyio.Event()

    def change(self) -> None:
        self.changes += 1
        self.changed.set()

    def update(self, uri: str) -> None:
        self.updated.append(uri)
        self.is_updated.set()


@asynccontextmanager
async def supervised(
    one: Source, seen: Seen | None = None, watched: frozenset[str] = frozenset()
) -> AsyncIterator[Any]:
    """Run a source that was listed, or could not be."""
    seen = seen or Seen()
    reaping = Reaping()
    made = SourceSupervisor(
        one, reaping, log=structlog.get_logger(),
        tell_health=lambda _is, _why: None, on_change=seen.change, on_update=seen.update,
    )  # fmt: skip
    made.watch(watched)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(made.run)
            await made.has_tried.wait()
            yield made
            tasks.cancel_scope.cancel()
    finally:
        await reaping.close()


def script(text: str, **members: Any) -> Source:
    """A shell's text as a source; `SERVER` in it is the small server."""
    server = shlex.join([sys.executable, "-S", str(SERVER), "2025"])
    words = ("sh", "-c", text.replace("SERVER", f"exec {server}"))
    return source().model_copy(update={"way": Command(words=words, env={"TOKEN": Value(text=SECRET)}), **members})


async def call(made: SourceSupervisor, name: str, **arguments: Any) -> Any:
    async with made.connection(NOBODY) as connection:
        return await connection.request("tools/call", {"name": name, "arguments": arguments})


async def lose(made: SourceSupervisor, name: str, **arguments: Any) -> None:
    """Make a call that ends its connection."""
    with pytest.raises(UpstreamLost):
        await call(made, name, **arguments)


@pytest.mark.rule("B18", "B7")
async def test_calls_that_wait_for_a_source_are_refused_once_it_cannot_start_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with supervised(script(f"test -e {flag} || exit 4; SERVER")) as made:
        flag.unlink()
        await lose(made, "die")
        with anyio.fail_after(10), pytest.raises(NotSent):
            await call(made, "pid")


async def test_calls_wait_idly_while_the_child_of_a_lost_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that hears no end of its input takes a second to end."""
    monkeypatch.setattr("mcpfleet.worker.hosting.child.STEP", 1.0)
    async with supervised(script("SERVER", message_limit=64 * 1024)) as made:
        [said] = (await call(made, "linger"))["content"]
        await lose(made, "write", text="x", times=200_000)
        began, used = time.monotonic(), time.process_time()
        assert (await call(made, "pid"))["content"] != [said]
        assert time.process_time() - used < (time.monotonic() - began) / 2


async def test_a_call_right_after_a_lost_connection_waits_for_the_next_one() -> None:
    async with supervised(source()) as made:
        for _ in range(3):
            await lose(made, "die")
            assert (await call(made, "pid"))["content"]


@pytest.mark.rule("B5")
async def test_what_was_watched_before_a_source_was_listed_is_watched_once_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A URI about which the source says nothing keeps no other from being watched."""
    monkeypatch.setattr("mcpfleet.worker.hosting.connection._WATCHES_WITHIN", 0.2)
    seen, uris = Seen(), frozenset({"fixture://books/silence", "fixture://one", "other://one"})
    async with supervised(source(), seen, uris) as made:
        with anyio.fail_after(10):
            await seen.is_updated.wait()
        assert sorted(seen.updated) == ["fixture://books/silence", "fixture://one"]
        assert (await call(made, "touch"))["content"] == [{"type": "text", "text": '["fixture://one"]'}]


async def test_a_source_that_comes_back_as_another_version_is_announced(tmp_path: Path) -> None:
    version, seen = tmp_path / "version", Seen()
    version.write_text("7")
    async with supervised(script(f"export VERSION=$(cat {version}); SERVER"), seen) as made:
        assert await seen.changed.wait(10)
        version.write_text("8")
        await lose(made, "die")
        assert await seen.changed.wait(10)
        assert made.listing.facts.server["version"] == "8"


@pytest.mark.rule("B21")
async def test_the_log_has_no_secret_that_a_source_writes() -> None:
    with capture_logs() as lines:
        async with supervised(script('echo "no JSON, $TOKEN"; SERVER')) as made:
            made.lists_changed()
    shown = [line["line"] for line in lines if line["event"] == "source wrote no JSON-RPC"]
    assert shown == ["no JSON, ***"]
