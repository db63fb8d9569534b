"""Streams of callers with credentials: scopes, quotas, what is hidden, and the end of a permission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import anyio
import pytest

from mcpfleet.app import App
from mcpfleet.bus.memory.faults import Faults
from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.authorization import AuthorizationClient, Revoke
from mcpfleet.edge.streams.hub import Hub
from mcpfleet.process.service import Process
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.testing.local import LocalFleet
from tests.chaos.streams import alive
from tests.contract.fleet.listener import ACK, END, UPDATED, Listener, changed, listening
from tests.kit.waiting import pause, until

OPEN, GUARDED, HIDDEN = "shelf://open", "shelf://guarded", "shelf://hidden"
ANN, BOB = "secret-of-ann", "secret-of-bob"
TOKENS = {
    "tokens": [
        {"token": ANN, "subject": "ann", "tenant": "acme", "scopes": ["read"], "audience": "mcp"},
        {"token": BOB, "subject": "bob", "tenant": "other", "audience": "mcp"},
    ]
}
NOTHING: Mapping[str, str] = MappingProxyType({})


def shelf() -> App:
    app = App("shelf", version="1.0.0")

    @app.resource(OPEN)
    async def free() -> str:
        """For everybody."""
        return "open"

    @app.resource(GUARDED, scopes=["read"])
    async def guarded() -> str:
        """For readers."""
        return "guarded"

    @app.resource(HIDDEN, only_for=["tenant:acme"])
    async def hidden() -> str:
        """For one tenant."""
        return "hidden"

    return app


def fleet(app: App | None = None, environment: Mapping[str, str] = NOTHING, **options: Any) -> LocalFleet:
    own = {"MCPFLEET_AUTHORIZATION": "static", "MCPFLEET_TOKENS": json.dumps(TOKENS), **environment}
    return LocalFleet(app or shelf(), environment=own, **options)


async def revoke(running: LocalFleet, subject: str) -> None:
    """End somebody's permission, as an operator does."""
    process = Process("operator", ProcessSettings())
    bus = bus_of(process, "operator", running.switch.connector("operator", process.settings, process=process.id))
    async with anyio.create_task_group() as tasks:
        await tasks.start(bus.run)
        await bus.wait_up()
        await AuthorizationClient(bus).revoke(Revoke(kind="subject", name=subject, id="1" * 32))
        tasks.cancel_scope.cancel()


async def refused(running: LocalFleet, token: str, edge: int = 0, **notifications: Any) -> int:
    """The status of a listen that is answered by an error."""
    async with running.http(edge) as http:
        stream = Listener()
        await stream.run(http, "/mcp", notifications, token)
        assert stream.messages == []
        return stream.status


async def test_a_revocation_ends_the_streams_that_it_concerns_and_no_others() -> None:
    """S3, D10: at every edge, by a clean end, and nothing is told in between."""
    app = shelf()
    async with (
        fleet(app, edges=2) as running,
        running.http(0) as one,
        running.http(1) as two,
        listening(one, "/mcp", 2, token=ANN, resourceSubscriptions=[OPEN]) as anns,
        listening(two, "/mcp", 2, token=ANN, resourceSubscriptions=[OPEN]) as more,
        listening(two, "/mcp", token=BOB, resourceSubscriptions=[OPEN]) as [bobs],
    ):
        await revoke(running, "ann")
        await until(lambda: all(stream.is_over for stream in anns + more))
        assert {tuple(stream.kinds()) for stream in anns + more} == {(ACK, END)}
        app.publish(OPEN)
        await until(lambda: bobs.kinds() == [ACK, UPDATED])


@pytest.mark.rule("S3", "S4")
async def test_what_waits_for_a_renewal_is_told_where_its_caller_may_still_read_it() -> None:
    app = shelf()
    async with (
        fleet(app) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[GUARDED, OPEN]) as [listener],
    ):
        [(hub, stream)] = [(hub, stream) for hub in alive(Hub) for stream in hub.streams()]
        stream.fence()
        for uri in (GUARDED, OPEN):
            app.publish(uri)
        await until(lambda: len(stream._pending) == 2)
        stream.lease.principal = stream.lease.principal.model_copy(update={"scopes": ()})
        hub._refresh(stream)
        await until(lambda: len(listener.messages) == 2)
        app.publish(OPEN)
        await until(lambda: len(listener.messages) == 3)
        assert [each["params"]["uri"] for each in listener.messages[1:]] == [OPEN, OPEN]


@pytest.mark.rule("D10")
async def test_who_lacks_a_scope_for_what_it_watches_is_told_which() -> None:
    async with fleet() as running, running.http() as http:
        assert await refused(running, BOB, resourceSubscriptions=[OPEN, GUARDED]) == 403
        async with listening(http, "/mcp", token=ANN, resourceSubscriptions=[GUARDED]) as [stream]:
            assert stream.kinds() == [ACK]


@pytest.mark.rule("T12", "invariant 4", "invariant 8")
async def test_what_is_hidden_is_watched_in_vain_and_looks_like_what_is_not_there() -> None:
    app = shelf()
    uris = [HIDDEN, "shelf://none", OPEN]
    async with (
        fleet(app) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=uris) as [anns],
        listening(http, "/mcp", token=BOB, resourceSubscriptions=uris) as [bobs],
    ):
        assert bobs.messages[0]["params"]["notifications"] == anns.messages[0]["params"]["notifications"]
        app.publish(HIDDEN)
        app.publish(OPEN)
        await until(lambda: anns.uris() == [HIDDEN, OPEN])
        await until(lambda: bobs.uris() == [OPEN])


@pytest.mark.rule("S15")
async def test_a_list_that_changed_for_others_alone_is_told_to_them_alone() -> None:
    app = shelf()
    async with (
        fleet(app) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourcesListChanged=True) as [anns],
        listening(http, "/mcp", token=BOB, resourcesListChanged=True) as [bobs],
    ):
        app.remove("resource", HIDDEN)
        await until(lambda: anns.kinds() == [ACK, changed("resources")])
        app.remove("resource", OPEN)
        await until(lambda: bobs.kinds() == [ACK, changed("resources")])
        await until(lambda: len(anns.messages) == 3)


@pytest.mark.rule("D7")
async def test_a_partition_keeps_to_its_quota_over_all_edges() -> None:
    limit = {"MCPFLEET_PARTITION_STREAMS": "2"}
    async with (
        fleet(edges=2, environment=limit) as running,
        running.http(0) as one,
        running.http(1) as two,
        listening(one, "/mcp", token=ANN, resourcesListChanged=True),
        listening(two, "/mcp", token=BOB, resourcesListChanged=True),
    ):
        async with listening(two, "/mcp", token=ANN, resourcesListChanged=True):
            assert await refused(running, ANN, 0, resourcesListChanged=True) == 503
            assert await refused(running, ANN, 1, resourcesListChanged=True) == 503
        with anyio.fail_after(5):
            while not await opens(running, ANN):
                await pause()


@pytest.mark.rule("N11", "S10")
async def test_a_stream_that_is_about_to_open_has_a_place_of_its_edge_already() -> None:
    """Those that wait to be counted are bounded as well, and one that finds no room is told so at once."""
    async with (
        fleet(environment={"MCPFLEET_MAX_STREAMS": "1"}) as running,
        running.http() as http,
        anyio.create_task_group() as tasks,
    ):
        running.switch.misbehave(Faults(lost=1.0, subjects=("mcpfleet.subscriptions.open",)))
        waiting, hubs = Listener(), alive(Hub)
        tasks.start_soon(waiting.run, http, "/mcp", {"resourcesListChanged": True}, ANN)
        await until(lambda: any(map(len, hubs)))
        assert await refused(running, BOB, resourcesListChanged=True) == 503
        assert (waiting.messages, waiting.is_over) == ([], False)
        running.switch.misbehave()
        assert await waiting.told(1) == [ACK], "it was asked for again"
        tasks.cancel_scope.cancel()


async def opens(running: LocalFleet, token: str) -> bool:
    """Whether a stream can be opened."""
    async with running.http() as http:
        stream = Listener()
        with anyio.move_on_after(0.3):
            await stream.run(http, "/mcp", {"resourcesListChanged": True}, token)
        return stream.kinds() == [ACK]


@pytest.mark.rule("S2")
async def test_a_stream_outlives_the_verdicts_that_calls_go_by() -> None:
    """N6: while authorization is away it goes on for its permission's time, which is longer than a verdict is kept."""
    app = shelf()
    async with (
        fleet(app, environment={"MCPFLEET_ADMISSION_LASTS": "0.5"}) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[OPEN]) as [stream],
    ):
        await running.authorization.kill()
        await anyio.sleep(2)
        app.publish(OPEN)
        await until(lambda: stream.kinds() == [ACK, UPDATED])


@pytest.mark.rule("S2")
async def test_a_stream_ends_with_its_credential_however_long_permissions_last() -> None:
    ends = datetime.now(UTC) + timedelta(seconds=3)
    tokens = {"tokens": [{"token": ANN, "subject": "ann", "audience": "mcp", "expires": ends.isoformat()}]}
    async with (
        fleet(environment={"MCPFLEET_TOKENS": json.dumps(tokens)}) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[OPEN]) as [stream],
    ):
        await stream.over()
        assert -1 < (datetime.now(UTC) - ends).total_seconds() < 8
        assert stream.kinds() == [ACK, END]


@pytest.mark.rule("S1")
async def test_losing_authorization_ends_streams_when_their_permission_runs_out() -> None:
    """Blueprint, 6; K19: it is asked again until then, and what comes back in time ends nothing."""
    app = shelf()
    async with (
        fleet(app, environment={"MCPFLEET_PERMISSION_LASTS": "2"}) as running,
        running.http() as http,
        listening(http, "/mcp", token=ANN, resourceSubscriptions=[OPEN]) as [stream],
    ):
        await anyio.sleep(3)  # longer than the first permission
        app.publish(OPEN)
        await until(lambda: stream.kinds() == [ACK, UPDATED])
        await running.authorization.kill()
        await stream.over()
        assert stream.kinds() == [ACK, UPDATED, END]
