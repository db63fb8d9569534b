"""Connections that belong to one caller: nobody else's calls reach them, and they are bounded and end unused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.app import Context, Principal
from mcpfleet.sources.source import Source
from mcpfleet.worker.hosting.source_supervisor import SourceSupervisor
from mcpfleet.worker.upstream import NotSent, UpstreamLost
from tests.contract.fleet.accounts_app import ANN, BOB, TOKENS
from tests.contract.fleet.vault_app import post
from tests.contract.hosting.hosting_harness import hosted_fleet, source
from tests.contract.hosting.test_children import is_running
from tests.contract.hosting.test_source_supervisor import Seen, script, supervised
from tests.kit.waiting import pause

_SPARED = "mcpfleet.worker.hosting.keyed_connections._SPARED"


def owned(**members: Any) -> Source:
    """The small server with a process for each caller."""
    return source(isolation=None, **members)


async def call(made: SourceSupervisor, who: str | None, name: str, **arguments: Any) -> str:
    """Make a call as a caller, and return its text."""
    async with made.connection(Context(principal=Principal(subject=who))) as connection:
        result = await connection.request("tools/call", {"name": name, "arguments": arguments})
    return str(result["content"][0]["text"])


async def lose(made: SourceSupervisor, who: str) -> None:
    """End a caller's process in a call."""
    with pytest.raises(UpstreamLost):
        await call(made, who, "die")


async def gone(pid: str) -> None:
    """Wait until a process has ended."""
    with anyio.fail_after(10):
        while is_running(int(pid)):
            await pause()


@pytest.mark.rule("B15")
async def test_each_caller_has_a_process_of_its_own_and_keeps_it() -> None:
    async with supervised(owned()) as made:
        anns, bobs = await call(made, "ann", "pid"), await call(made, "bob", "pid")
        assert anns != bobs
        assert [await call(made, "ann", "pid"), await call(made, "bob", "pid")] == [anns, bobs]


@pytest.mark.rule("B15")
async def test_callers_without_a_name_have_a_process_for_each_call() -> None:
    async with supervised(owned()) as made:
        assert await call(made, None, "pid") != await call(made, None, "pid")


@pytest.mark.rule("B15")
async def test_a_callers_first_calls_that_come_together_start_one_process() -> None:
    pids: set[str] = set()

    async def note() -> None:
        pids.add(await call(made, "ann", "pid"))

    async with supervised(owned()) as made, anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(note)
    assert len(pids) == 1


@pytest.mark.rule("B15", "B17")
async def test_an_unused_process_ends_after_its_idle_time_and_the_next_call_has_another() -> None:
    async with supervised(owned(idle=0.2)) as made:
        first = await call(made, "ann", "pid")
        await gone(first)
        assert await call(made, "ann", "pid") != first


@pytest.mark.rule("B17")
async def test_a_process_does_not_end_idle_while_a_call_runs() -> None:
    async with supervised(owned(idle=0.2)) as made, anyio.create_task_group() as tasks:
        tasks.start_soon(call, made, "ann", "sleep")
        pid = await call(made, "ann", "pid")
        await anyio.sleep(0.5)
        assert is_running(int(pid))
        tasks.cancel_scope.cancel()


@pytest.mark.rule("B17")
async def test_a_caller_beyond_the_bound_is_refused_while_others_were_there_lately() -> None:
    async with supervised(owned(children=1)) as made:
        pid = await call(made, "ann", "pid")
        with pytest.raises(NotSent):
            await call(made, "bob", "pid")
        assert await call(made, "ann", "pid") == pid


@pytest.mark.rule("B17")
async def test_a_caller_beyond_the_bound_takes_the_place_of_the_longest_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_SPARED, 0.0)
    async with supervised(owned(children=2)) as made:
        anns, bobs = await call(made, "ann", "pid"), await call(made, "bob", "pid")
        await call(made, "ann", "pid")
        await call(made, "cid", "pid")
        assert not is_running(int(bobs))
        assert await call(made, "ann", "pid") == anns


@pytest.mark.rule("B17")
async def test_nothing_that_runs_ends_for_another_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_SPARED, 0.0)
    async with supervised(owned(children=1)) as made, anyio.create_task_group() as tasks:
        tasks.start_soon(call, made, "ann", "sleep")
        pid = await call(made, "ann", "pid")
        with pytest.raises(NotSent):
            await call(made, "bob", "pid")
        assert await call(made, "ann", "pid") == pid
        tasks.cancel_scope.cancel()


@pytest.mark.rule("B17")
async def test_a_call_waits_for_a_process_that_ends_already() -> None:
    """A child of the call before may take a while to end, and that call counts no more."""
    async with supervised(source(isolation="call", children=1)) as made:
        for _ in range(3):
            assert await call(made, "ann", "pid")


@pytest.mark.rule("B18")
async def test_a_key_whose_process_ends_too_often_is_paused_and_no_other() -> None:
    async with supervised(owned()) as made:
        bobs = await call(made, "bob", "pid")
        for _ in range(5):
            await lose(made, "ann")
        with pytest.raises(NotSent):
            await call(made, "ann", "pid")
        assert await call(made, "bob", "pid") == bobs


@pytest.mark.rule("B18", "B7")
async def test_a_start_that_fails_pauses_further_starts_and_no_running_process(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    async with supervised(script(f"test -e {flag} || exit 4; SERVER", isolation="caller")) as made:
        anns = await call(made, "ann", "pid")
        flag.unlink()
        with pytest.raises(NotSent):
            await call(made, "bob", "pid")
        flag.touch()
        with pytest.raises(NotSent):
            await call(made, "cid", "pid")
        assert await call(made, "ann", "pid") == anns


@pytest.mark.rule("B5", "B15")
async def test_what_clients_watch_is_watched_in_each_callers_process() -> None:
    """A caller whose process was lost has another state, so those who watch read again."""
    seen, uris = Seen(), frozenset({"fixture://one"})
    async with supervised(owned(), seen, uris) as made:
        with anyio.fail_after(10):
            await seen.is_updated.wait()
            for _ in range(2):
                while json.loads(await call(made, "ann", "touch")) != ["fixture://one"]:
                    await pause()
                seen.updated.clear()
                seen.is_updated = anyio.Event()
                await lose(made, "ann")
                await call(made, "ann", "pid")
                await seen.is_updated.wait()


@pytest.mark.rule("B15", "B2")
async def test_results_show_a_callers_connection_and_whether_it_is_new() -> None:
    own = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS)}
    async with hosted_fleet(owned(), environment=own) as fleet, fleet.http() as http:

        async def label(token: str) -> Any:
            answer = await post(http, token, "tools/call", {"name": "echo", "arguments": {}}, "echo")
            meta = answer.json()["result"]["_meta"]
            assert meta["com.example/kept"] == [1]
            return meta["io.mcpfleet/connection"]

        anns, bobs = await label(ANN), await label(BOB)
        assert anns != bobs
        assert await label(ANN) == anns
        await post(http, ANN, "tools/call", {"name": "die", "arguments": {}}, "die")
        assert await label(ANN) != anns
        assert await label(BOB) == bobs
        assert fleet.lines("connection ended")[-1]["why"] == "ended with exit code 3; it last wrote: dying as asked"
