"""Every test of the store runs twice: on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mcpfleet.authorization.tables import SCHEMA as AUTHORIZATION
from mcpfleet.catalog.tables import SCHEMA as CATALOG
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.migrate import migrate
from mcpfleet.store.settings import Bounds
from mcpfleet.subscriptions.tables import SCHEMA as SUBSCRIPTIONS
from mcpfleet.tasks.tables import SCHEMA as TASKS
from tests.kit.postgres import Postgres, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of an empty database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/fleet.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    async with server.database() as address:
        yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the tables of every service."""
    async with open_store(url, service="test", embedded=True, singles=True, bounds=Bounds()) as opened:
        await migrate(opened, [AUTHORIZATION, CATALOG, SUBSCRIPTIONS, TASKS])
        yield opened
