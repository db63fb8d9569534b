"""The catalog as it is run: over a real NATS with its users, on both databases."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import Failed
from mcpfleet.bus.port import Incoming
from mcpfleet.catalog.__main__ import serve
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.contracts.catalog import Announce, CatalogClient, hint_subject
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.service import Process
from mcpfleet.store.engine import Store
from tests.contract.store.announcing import manifest
from tests.contract.store.serving import POOLS, connect, nats_server, password, why_not_ready
from tests.kit.postgres import Postgres
from tests.kit.waiting import until

SEARCH = manifest("search")


@dataclass
class Running:
    """A catalog that runs, and the way to ask it as any user."""

    nats: EmbeddedNats
    process: Process[CatalogSettings]
    buses: dict[str, Bus]
    hints: list[int]
    """The numbers that were hinted at."""
    moments: list[float]
    """When each hint came (monotonic)."""
    hinted: anyio.Event

    def client(self, user: str) -> CatalogClient:
        return CatalogClient(self.buses[user], timeout=5)

    async def announce(self, pool: str, process: str, what: Manifest) -> None:
        """Announce as a worker of the pool does."""
        client = self.client(f"pool-{pool}")
        answer = await client.announce(pool, Announce(process=process, digest=what.digest))
        if answer.wanted:
            text = what.text
            answer = await client.announce(pool, Announce(process=process, digest=what.digest, manifest=text))
        assert not answer.wanted

    async def hint(self) -> int:
        """Wait for the next hint, and return its number."""
        with anyio.fail_after(10):
            await self.hinted.wait()
        self.hinted = anyio.Event()
        return self.hints[-1]


@asynccontextmanager
async def catalog(url: str, folder: Path, **settings: Any) -> AsyncIterator[Running]:
    """Run NATS and a catalog, and connect an edge, an operator and two pools."""
    async with nats_server(folder, POOLS) as nats, anyio.create_task_group() as tasks:
        own = CatalogSettings(
            nats_url=nats.url,
            nats_password=SecretStr(password("catalog")),
            store_url=SecretStr(url),
            embedded=True,
            **{"catalog_sweep": 0.1, **settings},
        )
        running = Running(nats, Process("catalog", own), {}, [], [], anyio.Event())
        for user in ("edge", "operator", *(f"pool-{pool}" for pool in POOLS)):
            running.buses[user] = await connect(tasks.start, nats, user)

        def on_hint(message: Incoming) -> None:
            running.hints.append(int(message.body))
            running.moments.append(time.monotonic())
            running.hinted.set()

        await running.buses["edge"].subscribe(hint_subject("mcp"), on_hint)
        async with anyio.create_task_group() as serving:
            serving.start_soon(serve, running.process)
            await until(lambda: running.process.health.ready)
            yield running
            running.process.stopping.set()
        tasks.cancel_scope.cancel()


async def test_an_announcement_becomes_a_hint_and_a_snapshot(url: str, store: Store, tmp_path: Path) -> None:
    async with catalog(url, tmp_path) as running:
        await running.announce("library", "a", SEARCH)
        assert await running.hint() == 1
        answer = await running.client("edge").snapshot("mcp", None)
        assert answer.snapshot is not None
        assert [listed.pool for listed in answer.snapshot.listed] == ["library"]
        known = await running.client("edge").snapshot("mcp", 1)
        assert (known.number, known.snapshot) == (1, None)


async def test_who_announces_is_said_by_the_subject(url: str, store: Store, tmp_path: Path) -> None:
    """Two pools may use the same process id: neither can speak for the other's worker."""
    async with catalog(url, tmp_path) as running:
        await running.announce("library", "same", SEARCH)
        await running.hint()
        await running.announce("archive", "same", manifest("scan"))
        assert await running.hint() == 2
        answer = await running.client("edge").snapshot("mcp", None)
        assert answer.snapshot is not None
        assert {listed.pool for listed in answer.snapshot.listed} == {"library", "archive"}


async def test_a_worker_that_falls_silent_is_counted_no_longer(url: str, store: Store, tmp_path: Path) -> None:
    async with catalog(url, tmp_path, worker_lost=0.5) as running:
        await running.announce("library", "a", SEARCH)
        await running.hint()
        with anyio.fail_after(10):
            while (await running.client("operator").withdraw("library")).workers:  # noqa: ASYNC110
                await anyio.sleep(0.05)
        assert await running.hint() == 2


async def test_a_worker_that_changes_without_end_makes_one_snapshot_a_pause(
    url: str, store: Store, tmp_path: Path
) -> None:
    """Every edge fetches each; the first change after a quiet time is still told at once."""
    pause = 0.4
    async with catalog(url, tmp_path, catalog_sweep=60, catalog_pause=pause) as running:
        with anyio.fail_after(30):
            while len(running.hints) < 4:
                for names in (["search"], ["search", "read"]):
                    await running.announce("library", "a", manifest(*names))
        gaps = [after - before for before, after in pairwise(running.moments)]
        assert min(gaps) > 0.9 * pause
        await anyio.sleep(2 * pause)
        quiet = time.monotonic()
        await running.announce("library", "a", manifest("at-once"))
        with anyio.fail_after(10):
            await until(lambda: running.moments[-1] > quiet)


async def test_an_operator_withdraws_a_pool_that_lingers(url: str, store: Store, tmp_path: Path) -> None:
    async with catalog(url, tmp_path) as running:
        await running.announce("library", "a", SEARCH)
        await running.hint()
        refused = await running.client("operator").withdraw("library")
        assert (refused.definitions, refused.workers) == (0, 1)
        leaving = Announce(process="a", digest=SEARCH.digest, leaving=True)
        await running.client("pool-library").announce("library", leaving)
        withdrawn = await running.client("operator").withdraw("library")
        assert (withdrawn.definitions, withdrawn.workers) == (1, 0)
        assert await running.hint() == 2
        answer = await running.client("edge").snapshot("mcp", 1)
        assert answer.snapshot is not None
        assert answer.snapshot.listed == ()


async def test_a_broken_manifest_is_refused_by_field_and_rule(url: str, store: Store, tmp_path: Path) -> None:
    async with catalog(url, tmp_path) as running:
        broken = SEARCH.text + " "
        with pytest.raises(Failed, match="digest") as raised:
            await running.client("pool-library").announce(
                "library", Announce(process="a", digest=SEARCH.digest, manifest=broken)
            )
        assert raised.value.kind == "contract"


async def test_the_catalog_outlives_an_outage_of_its_store(postgres: Postgres, tmp_path: Path) -> None:
    async with postgres.migrated() as url, catalog(url, tmp_path) as running:
        await running.announce("library", "a", SEARCH)
        await running.hint()
        await postgres.shut(url)
        await until(lambda: "MCPFLEET_STORE_URL" in why_not_ready(running.process))
        with pytest.raises(Failed) as raised:
            await running.announce("library", "a", SEARCH)
        assert (raised.value.kind, str(raised.value)) == (
            "unavailable", "catalog.announce.{pool}: the receiver's store does not answer",
        )  # fmt: skip
        await postgres.open(url)
        await until(lambda: running.process.health.ready)
        await running.announce("library", "b", manifest("search", "read"))
        assert (await running.client("operator").withdraw("library")).workers == 2


async def test_tables_that_are_older_than_the_release_end_the_service(empty: str, tmp_path: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as raised:
        async with catalog(empty, tmp_path):
            pass
    (leaf,) = leaves(raised.value)
    assert isinstance(leaf, ConfigurationError)
    assert "mcpfleet migrate" in str(leaf)


async def test_a_catalog_without_its_store_waits_is_not_ready_and_stops_when_told(tmp_path: Path) -> None:
    away = "postgresql://me:hunter2@127.0.0.1:1/fleet"
    settings = CatalogSettings(nats_url="nats://127.0.0.1:1", store_url=SecretStr(away), catalog_sweep=0.05)
    process = Process("catalog", settings)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, process)
            await until(lambda: "MCPFLEET_STORE_URL" in why_not_ready(process))
            assert not process.health.ready
            assert "hunter2" not in why_not_ready(process)
            process.stopping.set()
