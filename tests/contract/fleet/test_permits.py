"""An application's permit decides who reads, listens, subscribes and completes, and what is told (X50 to X52)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcpfleet.app import load
from mcpfleet.bus.memory.faults import Faults
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import ANN, ANNS, BOB, BOBS, TOKENS, account_of
from tests.contract.fleet.listener import ACK, Listener, listening
from tests.contract.fleet.test_who_may_hear import honoured
from tests.contract.fleet.vault_app import Vault, fleet, post, read
from tests.contract.fleet.visitor import Visitors
from tests.kit.waiting import until

EXAMPLE = Path(__file__).parents[3] / "examples" / "accounts.py"
TEMPLATE = {"type": "ref/resource", "uri": "acct://accounts/{name}"}
SILENT = {
    "jsonrpc": "2.0",
    "id": 1,
    "error": {"code": -32603, "message": "the resource could not do this now; nothing was changed: ask again"},
}
SOON = {"MCPFLEET_PERMISSION_LASTS": "1.5"}


@pytest.mark.rule("X50")
async def test_whom_the_permit_refuses_every_method_answers_as_if_nothing_were_there() -> None:
    """Reads, listens, subscribes, completions and what is watched; the function of the resource never runs."""
    vault = Vault()
    async with fleet(vault, edges=2) as running, running.http(0) as one, running.http(1) as two:
        mine = await read(one, ANN, ANNS)
        assert mine.json()["result"]["contents"][0]["text"] == "money"
        assert mine.json()["result"]["cacheScope"] == "private"
        refused, unknown = await read(two, BOB, ANNS), await read(two, BOB, "acct://nothing")
        assert refused.status_code == unknown.status_code
        assert refused.json()["error"] == unknown.json()["error"] | {"data": {"uri": ANNS}}
        stream = Listener()
        await stream.run(one, "/mcp", {"resourceSubscriptions": [ANNS, account_of("nobody")]}, BOB)
        assert stream.kinds() == [ACK, "the end"]
        assert honoured(stream) is None
        completed = await post(
            one, BOB, "completion/complete", {"ref": TEMPLATE, "argument": {"name": "name", "value": ""}}
        )
        assert completed.json()["result"]["completion"]["values"] == ["bob"]
        async with listening(one, "/mcp", token=BOB, resourceSubscriptions=[ANNS, BOBS]) as [bobs]:
            assert honoured(bobs) == [BOBS]
            await until(lambda: vault.watched and vault.watched[-1] == {BOBS})
            for uri in (ANNS, BOBS):
                vault.app.publish(uri)
            await until(bobs.uris)
            assert bobs.uris() == [BOBS]
        async with Visitors(running) as visitors:
            visitor = await visitors.one(token=BOB)
            response = await visitor.ask("resources/subscribe", {"uri": ANNS})
            assert response["error"]["message"] == unknown.json()["error"]["message"]
            assert "result" in await visitor.ask("resources/subscribe", {"uri": BOBS})
        assert vault.reads == {("ann", "ann"): 1}


@pytest.mark.rule("X50")
async def test_a_read_and_its_permit_are_one_call_and_a_listen_asks_once_for_all_its_uris() -> None:
    vault = Vault()
    async with fleet(vault) as running, running.http() as http:
        await read(http, ANN, ANNS)
        assert vault.asked == [("ann", ("ann",))]
        many = [account_of(f"a{number}") for number in range(250)]
        async with listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS, *many]) as [stream]:
            assert honoured(stream) == [ANNS]
        assert len(vault.asked) <= 3
        assert sum(len(names) for _, names in vault.asked) == 252
        assert not vault.reads["ann", "a1"]


async def _raise(caller: Any, asked: Any) -> Any:
    raise OSError(f"the table of {caller.subject} is away")


async def _hang(caller: Any, asked: Any) -> Any:
    await anyio.sleep_forever()


@pytest.mark.rule("X48")
@pytest.mark.parametrize(
    "answer",
    [_raise, lambda _, asked: [True] * (len(asked) + 1), lambda _, asked: [1] * len(asked), lambda *_: None],
    ids=["raises", "another length", "no truth", "nothing"],
)
async def test_anything_but_an_answer_is_504_for_requests_and_keeps_streams_silent(answer: Any) -> None:
    vault = Vault()
    vault.answer = answer
    async with fleet(vault, {"MCPFLEET_READ_CHECKED_WITHIN": "0.5"}) as running, running.http() as http:
        response = await read(http, ANN, ANNS)
        assert response.status_code == 504
        assert "table" not in response.text
        assert not vault.reads
        async with Visitors(running) as visitors:
            visitor = await visitors.one(token=ANN)
            assert await visitor.ask("resources/subscribe", {"uri": ANNS}) == SILENT
        async with listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS]) as [stream]:
            vault.app.publish(ANNS)
            await until(lambda: len(vault.asked) >= 4)
            assert stream.uris() == []
            vault.answer = vault.permitted
            await until(stream.uris)
            assert stream.uris() == [ANNS], "silence delays"
        assert running.lines("permit failed")


@pytest.mark.rule("X51")
async def test_a_permit_is_asked_again_before_a_change_is_told_only_and_its_refusal_ends_the_uri() -> None:
    vault = Vault()
    async with (
        fleet(vault, SOON) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS], toolsListChanged=True) as [stream],
    ):
        asked = len(vault.asked)
        await anyio.sleep(3.2)
        assert len(vault.asked) == asked, "time alone asks nobody"
        vault.app.publish(ANNS)
        await until(stream.uris)
        assert len(vault.asked) == asked + 1
        await anyio.sleep(1.6)
        vault.readers.clear()
        vault.app.publish(ANNS)
        await until(lambda: len(vault.asked) == asked + 2)
        await anyio.sleep(1.6)
        vault.readers.add(("ann", "ann"))
        vault.app.publish(ANNS)
        vault.app.remove("tool", "touch")
        await until(lambda: "notifications/tools/list_changed" in stream.kinds())
        assert stream.uris() == [ANNS], "the stream goes on, the URI does not"
        async with listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS]) as [again]:
            assert honoured(again) == [ANNS]


@pytest.mark.rule("X51")
async def test_a_change_waits_as_one_bit_while_a_permit_is_silent() -> None:
    vault = Vault()
    async with (
        fleet(vault, {"MCPFLEET_READ_CHECKED_WITHIN": "0.3"}) as running,
        running.http() as http,
        listening(http, "/mcp", 40, token=ANN, resourceSubscriptions=[ANNS]) as streams,
    ):
        vault.answer = _hang
        vault.app.permits_changed()
        for _ in range(5):
            vault.app.publish(ANNS)
            await anyio.sleep(0.1)
        assert not any(stream.uris() for stream in streams)
        vault.answer = vault.permitted
        await until(lambda: all(stream.uris() for stream in streams))
        assert [stream.uris() for stream in streams] == [[ANNS]] * 40


@pytest.mark.rule("X52")
async def test_changed_permits_fence_the_uris_of_their_pool_at_every_edge_and_nothing_else() -> None:
    vault = Vault()
    async with (
        fleet(vault, edges=2) as running,
        running.http(0) as one,
        running.http(1) as two,
        listening(one, "/mcp", token=ANN, resourceSubscriptions=[ANNS], toolsListChanged=True) as [anns],
        listening(two, "/mcp", token=BOB, resourceSubscriptions=[BOBS]) as [bobs],
    ):
        asked = len(vault.asked)
        vault.readers.discard(("ann", "ann"))
        began = time.monotonic()
        vault.app.permits_changed()
        await anyio.sleep(0.3)
        for uri in (ANNS, BOBS):
            vault.app.publish(uri)
        await until(bobs.uris)
        assert time.monotonic() - began < 2
        assert anns.uris() == []
        assert sorted(vault.asked[asked:]) == [("ann", ("ann",)), ("bob", ("bob",))]
        vault.app.remove("tool", "touch")
        await until(lambda: "notifications/tools/list_changed" in anns.kinds())


@pytest.mark.rule("X52")
async def test_permits_change_once_a_second_at_most_and_a_lost_hint_is_repeated() -> None:
    vault = Vault()
    async with (
        fleet(vault) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[ANNS]) as [stream],
    ):
        running.switch.misbehave(Faults(lost=1.0, subjects=("*.hint.permits.*",)))
        vault.readers.clear()
        for _ in range(50):
            vault.app.permits_changed(ANNS)
        await anyio.sleep(0.5)
        vault.app.publish(ANNS)
        await until(stream.uris)
        running.switch.misbehave(Faults())
        asked, lost = len(vault.asked), time.monotonic()
        while len(vault.asked) == asked:  # each change asks, once the repeated hint has come
            vault.app.publish(ANNS)
            await anyio.sleep(0.1)
        assert time.monotonic() - lost < 5
        told = stream.uris()
        vault.app.publish(ANNS)
        await anyio.sleep(0.3)
        assert stream.uris() == told
        assert len(vault.asked) == asked + 1, "fifty changes within a second are one"


@pytest.mark.rule("X50", "X52")
async def test_the_example_lets_owners_read_and_whom_they_let_read() -> None:
    app = load(str(EXAMPLE))
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS)}
    async with LocalFleet(app, environment=environment) as running, running.http() as http:
        assert (await read(http, ANN, ANNS)).json()["result"]["contents"][0]["text"] == "12 euros"
        assert "error" in (await read(http, BOB, ANNS)).json()
        for may in (True, False):
            arguments = {"name": "let_read", "arguments": {"reader": "bob", "may": may}}
            assert (await post(http, ANN, "tools/call", arguments, "let_read")).status_code == 200
            assert ("result" in (await read(http, BOB, ANNS)).json()) is may


@pytest.mark.rule("X55")
async def test_the_example_asks_for_a_scope_by_the_arguments_and_for_one_by_the_function() -> None:
    app = load(str(EXAMPLE))
    environment = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS)}
    async with LocalFleet(app, environment=environment) as running, running.http() as http:

        async def pay(to: str, amount: int) -> tuple[int, str]:
            arguments = {"name": "pay", "arguments": {"to": to, "amount": amount}}
            response = await post(http, ANN, "tools/call", arguments, "pay")
            return response.status_code, response.headers.get("www-authenticate", "")

        for to, amount, scope in (("bob", 1000, "accounts:large"), ("eve", 1, "accounts:strangers")):
            status, challenge = await pay(to, amount)
            assert status == 403
            assert f'scope="{scope}"' in challenge
        assert (await read(http, ANN, ANNS)).json()["result"]["contents"][0]["text"] == "12 euros"
        assert (await pay("bob", 2))[0] == 200
        assert (await read(http, ANN, ANNS)).json()["result"]["contents"][0]["text"] == "10 euros"
