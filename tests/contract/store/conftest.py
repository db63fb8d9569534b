"""Every test of the store runs twice: on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.settings import Bounds
from tests.kit.postgres import Postgres, make_tables, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    dialect: str = request.param
    return dialect


@pytest.fixture
async def empty(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a database without tables."""
    if dialect == "sqlite":
        yield f"sqlite:///{tmp_path}/fleet.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    async with server.database() as address:
        yield address


@pytest.fixture
async def url(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[str]:
    """The address of a database with the tables of every service, as migrations leave them."""
    if dialect == "sqlite":
        template, copy = tmp_path_factory.getbasetemp() / "migrated.db", tmp_path / "fleet.db"
        if not template.exists():
            await make_tables(f"sqlite:///{template}")
        shutil.copyfile(template, copy)
        yield f"sqlite:///{copy}"
        return
    server: Postgres = request.getfixturevalue("postgres")
    async with server.migrated() as address:
        yield address


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """A store with the tables of every service."""
    async with open_store(url, service="test", embedded=True, singles=True, bounds=Bounds()) as opened:
        yield opened
