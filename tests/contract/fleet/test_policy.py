"""The operator's policy: what it hides is unknown in every method, and it judges streams (X48, X49, X52)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import Any

import anyio
import httpx2
import pytest

from mcpfleet.app import App
from mcpfleet.authorization.policy import Allow, Filter
from mcpfleet.contracts.authorization import Revoke
from mcpfleet.testing.local import LocalFleet
from tests.contract.fleet.accounts_app import ANN, BOB
from tests.contract.fleet.listener import ACK, Listener, changed, listening
from tests.contract.fleet.policy_app import fleet, policy, shop
from tests.contract.fleet.test_revocation import operator
from tests.contract.fleet.vault_app import post, read
from tests.kit.waiting import pause, until

Params = dict[str, Any]
SECRET, OPEN = "shop://secret", "shop://open"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    policy._reset()
    yield
    policy._reset()


async def names(http: httpx2.AsyncClient, token: str, method: str = "tools/list", member: str = "tools") -> list[str]:
    """The entries of a list."""
    response = await post(http, token, method, {})
    return [each["name"] for each in response.json()["result"][member]]


async def revoke_policy(running: LocalFleet) -> None:
    """Do what `mcpfleet revoke --policy` does."""
    async with operator(running) as client:
        await client.revoke(Revoke(kind="policy", id=secrets.token_hex(16)))


async def same(
    http: httpx2.AsyncClient, method: str, hidden: dict[str, Any], missing: dict[str, Any], name: str
) -> None:
    """A hidden item is answered as one that does not exist."""
    answers = [await post(http, ANN, method, each, each.get(name)) for each in (hidden, missing)]
    assert answers[0].status_code == answers[1].status_code
    found, wanted = (each.json()["error"] for each in answers)
    assert (found["code"], found["message"]) == (wanted["code"], wanted["message"])


@pytest.mark.rule("X48")
async def test_what_a_policy_hides_is_unknown_in_every_method_and_private() -> None:
    async with fleet(shop(), edges=2) as running, running.http(0) as one, running.http(1) as two:
        assert await names(one, ANN) == ["search"]
        assert await names(two, BOB) == ["search", "secret_search"]
        assert await names(one, ANN, "prompts/list", "prompts") == []
        assert await names(one, ANN, "resources/list", "resources") == ["open_shelf"]
        listed = (await post(one, ANN, "tools/list", {})).json()["result"]
        assert listed["cacheScope"] == "private"
        await same(one, "tools/call", {"name": "secret_search"}, {"name": "nothing"}, "name")
        await same(one, "prompts/get", {"name": "secret_review"}, {"name": "nothing"}, "name")
        await same(one, "resources/read", {"uri": SECRET}, {"uri": "shop://nothing"}, "uri")
        ref = {"type": "ref/prompt", "name": "secret_review"}
        argument = {"name": "title", "value": ""}
        await same(
            one,
            "completion/complete",
            {"ref": ref, "argument": argument},
            {"ref": ref | {"name": "nothing"}, "argument": argument},
            "name",
        )
        assert (await post(two, BOB, "tools/call", {"name": "secret_search"}, "secret_search")).status_code == 200
        async with listening(one, "/mcp", token=ANN, resourceSubscriptions=[SECRET, OPEN]) as [anns]:
            app = running._app
            assert isinstance(app, App)
            for uri in (SECRET, OPEN):
                app.publish(uri)
            await until(anns.uris)
            assert anns.uris() == [OPEN]


@pytest.mark.rule("X48")
async def test_visible_is_asked_once_for_each_group_snapshot_and_change_of_policy_in_pages() -> None:
    app = shop()
    for number in range(1_010):
        app.tool(f"tool-{number}")(_tool)
    async with fleet(app, edges=3) as running:
        https = [running.http(number) for number in range(3)]
        for _ in range(3):
            for http in https:
                assert len(await names(http, ANN)) == 1_011
        assert sorted(policy._asked) == [("ann", 15), ("ann", 1_000)]
        app.remove("tool", "tool-0")
        await until(lambda: len(running.lines("snapshot taken")) == 6)
        assert len(await names(https[0], ANN)) == 1_010
        assert sorted(policy._asked[2:]) == [("ann", 14), ("ann", 1_000)]
        await revoke_policy(running)
        policy._visible = lambda _, items: set()
        for http in https:  # as soon as the edge has heard of it
            for _ in range(100):
                if not await names(http, ANN):
                    break
                await anyio.sleep(0.05)
            assert await names(http, ANN) == []
        for http in https:
            await http.aclose()


async def _tool() -> None:
    """A tool."""


async def _raise(*_: Any) -> Any:
    raise OSError("the table of ann is away")


@pytest.mark.rule("X48")
@pytest.mark.parametrize(
    "answer",
    [_raise, lambda _, items: list(items), lambda *_: None, lambda *_: True, lambda _, items: items | {"other"}],
    ids=["raises", "a list", "nothing", "true", "more"],
)
async def test_anything_but_a_set_of_the_items_is_504_and_never_all(answer: Any) -> None:
    policy._visible = answer
    async with fleet(shop()) as running, running.http() as http:
        for method in ("tools/list", "resources/list"):
            response = await post(http, ANN, method, {})
            assert response.status_code == 504
            assert "table" not in response.text
        assert (await read(http, ANN, OPEN)).status_code == 504
        stream = Listener()
        await stream.run(http, "/mcp", {"toolsListChanged": True}, ANN)
        assert stream.status == 504
        policy._reset()
        assert await names(http, ANN) == ["search"]


@pytest.mark.rule("X49")
async def test_listen_judges_the_whole_filter_before_the_acknowledgment_and_may_narrow_it() -> None:
    policy._listen = lambda caller, wanted: Allow(Filter(frozenset(), (OPEN,)), 60) if caller.subject == "ann" else None
    app = shop()
    async with fleet(app) as running, running.http() as http:
        async with listening(http, "/mcp", token=ANN, resourceSubscriptions=[SECRET, OPEN], toolsListChanged=True) as [
            stream
        ]:
            [subject, _, wanted] = policy._judged[0]
            assert (subject, set(wanted.uris), set(wanted.lists)) == ("ann", {SECRET, OPEN}, {"tools"})
            assert stream.messages[0]["params"]["notifications"] == {"resourceSubscriptions": [OPEN]}
            app.remove("tool", "search")
            app.publish(OPEN)
            await until(stream.uris)
            assert stream.kinds()[1:] == ["notifications/resources/updated"]
        denied = Listener()
        await denied.run(http, "/mcp", {"toolsListChanged": True}, BOB)
        assert denied.kinds() == [ACK, "the end"]
        assert denied.messages[0]["params"]["notifications"] == {}


@pytest.mark.rule("X49")
@pytest.mark.parametrize(
    "answer",
    [_raise, lambda *_: True, lambda _, wanted: Allow(wanted, 0), lambda *_: Allow(Filter(frozenset({"prompts"})), 9)],
    ids=["raises", "true", "no seconds", "more"],
)
async def test_a_listen_without_an_answer_is_504(answer: Any) -> None:
    policy._listen = answer
    async with fleet(shop()) as running, running.http() as http:
        stream = Listener()
        await stream.run(http, "/mcp", {"toolsListChanged": True}, ANN)
        assert (stream.status, stream.messages) == (504, [])


@pytest.mark.rule("X51")
async def test_the_policys_seconds_bound_a_stream_and_a_renewal_may_narrow_it() -> None:
    policy._listen = lambda _, wanted: Allow(wanted, 1.0)
    app = shop()
    async with (
        fleet(app, {"MCPFLEET_PERMISSION_LASTS": "10"}) as running,
        running.http() as http,
        listening(http, "/mcp", token=BOB, resourceSubscriptions=[SECRET, OPEN]) as [stream],
    ):
        await until(lambda: len(policy._judged) >= 2, within=5)
        policy._listen = lambda _, wanted: Allow(Filter(uris=(OPEN,)), 1.0)
        judged = len(policy._judged)
        await until(lambda: len(policy._judged) >= judged + 2, within=5)
        app.publish(SECRET)
        app.publish(OPEN)
        await until(stream.uris)
        assert stream.uris() == [OPEN]
        policy._listen = _raise
        began = time.monotonic()
        await stream.over(within=5)
        assert time.monotonic() - began < 3, "no answer ends it with its lease"


@pytest.mark.rule("X52", "S3")
async def test_a_changed_policy_fences_all_streams_at_once_and_they_go_on_as_it_allows() -> None:
    app = shop()
    async with (
        fleet(app, edges=2) as running,
        running.http(0) as one,
        running.http(1) as two,
        listening(one, "/mcp", 20, token=ANN, resourceSubscriptions=[OPEN], toolsListChanged=True) as anns,
        listening(two, "/mcp", token=BOB, resourceSubscriptions=[SECRET]) as [bobs],
    ):
        gate = anyio.Event()

        async def wait(group: str, items: Any) -> Any:
            await gate.wait()
            return policy._by_name("nobody", items)

        policy._visible = wait
        await revoke_policy(running)
        await anyio.sleep(1.0)
        for uri in (OPEN, SECRET):
            app.publish(uri)
        await anyio.sleep(0.5)
        assert not any(stream.uris() for stream in (*anns, bobs)), "nothing passes the fence"
        gate.set()
        await until(lambda: all(stream.uris() == [OPEN] for stream in anns))
        await anyio.sleep(0.2)
        assert bobs.uris() == [], "bob's group does not see it any more"
        assert await names(two, BOB) == ["search"]
        denies = anyio.Event()
        policy._listen = lambda *_: denies.wait()
        await revoke_policy(running)
        await anyio.sleep(1.0)
        app.tool("later")(_tool)
        with anyio.fail_after(10):
            while "later" not in await names(one, ANN):
                await pause()
        assert not any(changed("tools") in stream.kinds() for stream in anns), "no list passes the fence either"
        policy._listen = lambda *_: None
        denies.set()
        for stream in (*anns, bobs):
            await stream.over(within=10)  # and not when its lease ends, after a minute
        assert not any(changed("tools") in stream.kinds() for stream in anns)


@pytest.mark.rule("X52")
async def test_after_a_changed_policy_nothing_passes_while_authorization_is_gone_and_leases_end_the_streams() -> None:
    app = shop()
    lasts = {"MCPFLEET_PERMISSION_LASTS": "3"}
    async with (
        fleet(app, lasts) as running,
        running.http() as http,
        listening(http, "/mcp", 5, token=ANN, resourceSubscriptions=[OPEN]) as streams,
    ):
        policy._visible = lambda _, items: anyio.sleep_forever()
        await revoke_policy(running)
        await anyio.sleep(1.0)  # the edge has heard of it
        await running.authorization.kill()
        app.publish(OPEN)
        for stream in streams:
            await stream.over(within=6)
        assert not any(stream.uris() for stream in streams), "nobody has answered since the change"
