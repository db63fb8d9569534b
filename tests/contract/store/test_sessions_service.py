"""Sessions as they are served: over a real NATS with its users, on both databases (D11)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr
from sqlalchemy import update

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.port import Incoming
from mcpfleet.contracts.sessions import (
    CHANGED_SUBJECT,
    BeginSession,
    ChangeSession,
    Session,
    SessionChanged,
    SessionRead,
    SessionsClient,
    session_key,
)
from mcpfleet.process.service import Process
from mcpfleet.store.engine import Store
from mcpfleet.subscriptions.__main__ import serve
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.subscriptions.tables import sessions
from tests.contract.store.serving import connect, nats_server, password
from tests.kit.waiting import until

ANN, BOB = "a" * 32, "b" * 32
FIRST = "1" * 32


@dataclass
class Running:
    """Replicas that run, and an edge that asks them and hears what they tell."""

    bus: Bus
    processes: list[Process[SubscriptionsSettings]] = field(default_factory=list)
    hints: list[SessionChanged] = field(default_factory=list)

    @property
    def client(self) -> SessionsClient:
        return SessionsClient(self.bus, timeout=5)

    async def begin(self, name: str, owner: str = ANN) -> None:
        await self.client.begin(BeginSession(session=session_key(name), owner=owner, revision="2025-11-25"))

    async def change(self, name: str, owner: str = ANN, **wanted: Any) -> SessionRead:
        return await self.client.change(ChangeSession(session=session_key(name), owner=owner, **wanted))

    async def told(self, name: str, *, ended: bool = False, deleted: bool = False) -> None:
        """Wait for the one hint that was told since."""
        with anyio.fail_after(5):
            await until(lambda: bool(self.hints))
        assert self.hints == [SessionChanged(session=session_key(name), ended=ended, deleted=deleted)]
        self.hints.clear()


@asynccontextmanager
async def subscriptions(url: str, folder: Path, *, replicas: int = 1, **settings: Any) -> AsyncIterator[Running]:
    """Run NATS and replicas, and connect an edge."""
    async with nats_server(folder) as nats, anyio.create_task_group() as tasks:
        running = Running(await connect(tasks.start, nats, "edge"))

        def on_hint(message: Incoming) -> None:
            running.hints.append(SessionChanged.model_validate_json(message.body))

        await running.bus.subscribe(CHANGED_SUBJECT, on_hint)
        own = SubscriptionsSettings(
            nats_url=nats.url,
            nats_password=SecretStr(password("subscriptions")),
            store_url=SecretStr(url),
            embedded=True,
            **settings,
        )
        async with anyio.create_task_group() as serving:
            for _ in range(replicas):
                process = Process("subscriptions", own)
                running.processes.append(process)
                serving.start_soon(serve, process)
            await until(lambda: all(process.health.ready for process in running.processes))
            yield running
            for process in running.processes:
                process.stopping.set()
        tasks.cancel_scope.cancel()


@pytest.mark.rule("D11")
async def test_a_session_is_the_same_whichever_replica_is_asked(url: str, store: Store, tmp_path: Path) -> None:
    async with subscriptions(url, tmp_path, replicas=2) as running:
        await running.begin("s")
        await running.change("s", opened=FIRST)
        for number in range(6):
            await running.change("s", subscribe=f"a:{number}")
            session = await running.client.read(session_key("s"), ANN)
            assert session is not None
            assert (len(session.uris), session.streams) == (number + 1, (FIRST,))
        assert await running.client.read(session_key("s"), BOB) is None


@pytest.mark.rule("D11")
async def test_edges_are_told_of_what_has_changed_and_of_nothing_else(url: str, store: Store, tmp_path: Path) -> None:
    async with subscriptions(url, tmp_path, session_uris=1) as running:
        await running.begin("s")
        known = await running.change("s", log_level="info")
        assert known == SessionRead(session=Session(revision="2025-11-25", log_level="info"))
        await running.told("s")
        assert await running.change("s", log_level="info") == known
        await running.client.read(session_key("s"), ANN)
        assert await running.change("s", BOB, log_level="error") == SessionRead()
        await running.change("s", subscribe="a:1")
        await running.told("s")
        assert (await running.change("s", subscribe="a:2")).is_full
        assert not await running.client.end(session_key("s"), BOB)
        assert await running.client.end(session_key("s"), ANN)
        await running.told("s", ended=True, deleted=True)
        assert not await running.client.end(session_key("s"), ANN)
        assert await running.change("s", log_level="info") == SessionRead()
        await running.begin("last")
        await running.change("last", log_level="info")
        await running.told("last")


@pytest.mark.rule("L8")
async def test_edges_are_told_of_sessions_that_ended_without_a_request(url: str, store: Store, tmp_path: Path) -> None:
    async with subscriptions(url, tmp_path, owner_sessions=1, subscriptions_sweep=0.1) as running:
        await running.begin("s")
        await running.begin("other")
        await running.told("s", ended=True)
        async with store.write() as connection:
            await connection.execute(update(sessions).values(touched_at=sessions.c.touched_at - 3601))
        await running.told("other", ended=True)
        assert await running.client.read(session_key("other"), ANN) is None
