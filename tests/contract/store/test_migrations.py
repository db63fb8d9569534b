"""Migrations, on both databases."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

import mcpfleet.store.migrate
from mcpfleet.authorization import tables as authorization
from mcpfleet.catalog import tables as catalog
from mcpfleet.catalog.tables import SCHEMA
from mcpfleet.contracts.grants import Holder, NewGrant
from mcpfleet.contracts.hints import resource_key
from mcpfleet.contracts.principal import Principal
from mcpfleet.contracts.sessions import ChangeSession
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.store.engine import Store, open_store
from mcpfleet.store.migrate import Schema, check_migrated, migrate
from mcpfleet.store.settings import Bounds
from mcpfleet.subscriptions import tables as subscriptions
from mcpfleet.subscriptions.grants import GrantRepository
from mcpfleet.subscriptions.sessions import SessionRepository
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.tasks import tables as tasks

_REVISION = """
from alembic import op
import sqlalchemy as sa
revision = "{revision}"
down_revision = {before!r}
def upgrade():
    op.create_table("{table}", sa.Column("id", sa.Integer, primary_key=True))
    {then}
"""


def schema(folder: Path, *revisions: str, then: str = "pass") -> Schema:
    """A service `books` whose revisions make a table each."""
    folder.mkdir(exist_ok=True)
    before = None
    for revision in revisions:
        table = f"books_{revision}"
        source = _REVISION.format(revision=revision, before=before, table=table, then=then)
        (folder / f"revision_{revision}.py").write_text(source)
        before = revision
    return Schema(service="books", revisions=folder)


async def tables(store: Store) -> set[str]:
    async with store.read() as connection:
        return set(await connection.run_sync(lambda plain: inspect(plain).get_table_names()))


async def test_the_newest_revision_is_known_without_alembic() -> None:
    """A service that checks its tables does not import it; both find the same revision."""
    for service in (authorization, catalog, subscriptions, tasks):
        scripts = Config()
        scripts.set_main_option("script_location", str(Path(mcpfleet.store.migrate.__file__).parent / "migrations"))
        scripts.set_main_option("version_locations", str(service.SCHEMA.revisions))
        scripts.set_main_option("path_separator", "os")
        assert service.SCHEMA.newest() == ScriptDirectory.from_config(scripts).get_current_head()
    program = "import sys, mcpfleet.tasks.__main__; sys.exit('alembic' in sys.modules)"
    assert (await anyio.run_process([sys.executable, "-c", program])).returncode == 0


@pytest.mark.parametrize(
    "service", [authorization, catalog, subscriptions, tasks], ids=lambda module: module.SCHEMA.service
)
async def test_revisions_make_exactly_the_tables_that_are_declared(store: Store, service: Any) -> None:
    def is_its_own(name: str | None, kind: str, _: object) -> bool:
        return kind != "table" or (
            str(name).startswith(f"{service.SCHEMA.service}_") and name != service.SCHEMA.version_table
        )

    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"include_name": is_its_own})
        return list(compare_metadata(context, service.metadata))

    async with store.read() as connection:
        assert await connection.run_sync(differences) == []


async def test_a_service_starts_on_migrated_tables_only(empty: str, tmp_path: Path) -> None:
    async with open_store(empty, service="test", embedded=True, bounds=Bounds()) as store:
        with pytest.raises(
            ConfigurationError, match=rf"revision none.*needs {SCHEMA.newest()}.*run `mcpfleet migrate`"
        ):
            await check_migrated(store, SCHEMA)
        assert await migrate(store, [SCHEMA]) == {"catalog": SCHEMA.newest()}
        await check_migrated(store, SCHEMA)


async def test_migrating_again_does_nothing(store: Store) -> None:
    assert await migrate(store, [SCHEMA]) == {}


async def test_each_service_has_its_own_history(store: Store, tmp_path: Path) -> None:
    books = schema(tmp_path / "books", "0001", "0002")
    assert await migrate(store, [SCHEMA, books]) == {"books": "0002"}
    assert {"books_0001", "books_0002", "books_revision", "catalog_revision"} <= await tables(store)


async def test_a_later_release_adds_its_revisions_and_the_earlier_one_goes_on(store: Store, tmp_path: Path) -> None:
    earlier = schema(tmp_path / "earlier", "0001")
    later = schema(tmp_path / "later", "0001", "0002")
    await migrate(store, [earlier])
    with pytest.raises(ConfigurationError, match=r"revision 0001.*needs 0002"):
        await check_migrated(store, later)
    assert await migrate(store, [later]) == {"books": "0002"}
    await check_migrated(store, earlier)
    assert await migrate(store, [earlier]) == {}
    await check_migrated(store, later)


@pytest.mark.rule("X56", "X59")
async def test_uris_of_the_release_without_grants_become_grants_and_that_release_goes_on(
    empty: str, tmp_path: Path
) -> None:
    """Subscriptions from 0002 to 0003: a session keeps its URIs, and the next subscribe gives the grant a lease."""
    former = tmp_path / "former"
    former.mkdir()
    for number in ("0001", "0002"):
        shutil.copy(subscriptions.SCHEMA.revisions / f"revision_{number}.py", former)
    wanted = {"session": "5" * 32, "owner": "0" * 32}
    async with open_store(empty, service="test", embedded=True, bounds=Bounds()) as store:
        assert await migrate(store, [Schema(service="subscriptions", revisions=former)]) == {"subscriptions": "0002"}
        await begin_as_the_former_release(store, **wanted)
        await write_as_the_former_release(store, "a:1", wanted["session"])
        assert await migrate(store, [subscriptions.SCHEMA]) == {"subscriptions": subscriptions.SCHEMA.newest()}
        await write_as_the_former_release(store, "a:2", wanted["session"])
        sessions = SessionRepository(store, SubscriptionsSettings())
        grants = GrantRepository(store, SubscriptionsSettings())
        session = await sessions.read(wanted["session"], wanted["owner"])
        assert session is not None
        assert {(each.uri, each.lasts, each.dirty, each.number) for each in session.grants} == {
            ("a:1", None, 0, None), ("a:2", None, 0, None),
        }  # fmt: skip
        assert await grants.due(policy=9) == [], "nobody knows whom to ask about"
        holder = Holder(endpoint="mcp", principal=Principal(subject="ann"), number=1)
        grant = NewGrant(holder=holder, pool="shop")
        change = ChangeSession(session=wanted["session"], owner=wanted["owner"], subscribe="a:1", grant=grant)
        changed = (await sessions.change(change)).session
        assert changed is not None
        [first, second] = sorted(changed.grants, key=lambda each: each.uri)
        assert (first.number, second.lasts, second.generation) == (1, None, 0)
        assert first.lasts is not None


async def begin_as_the_former_release(store: Store, session: str, owner: str) -> None:
    """Write a session as revision 0002 knows it."""
    row = {
        "session": session, "owner": owner, "revision": "2025-11-25", "client": "{}", "capabilities": "{}",
        "begun_at": time.time(), "touched_at": time.time(),
    }  # fmt: skip
    values = ", ".join(f":{name}" for name in row)
    async with store.write() as connection:
        await connection.execute(text(f"INSERT INTO subscriptions_sessions ({', '.join(row)}) VALUES ({values})"), row)


async def write_as_the_former_release(store: Store, uri: str, session: str) -> None:
    """Write a session's URI as revision 0002 knows it."""
    async with store.write() as connection:
        await connection.execute(
            text("INSERT INTO subscriptions_session_uris (session, uri_key, uri) VALUES (:session, :key, :uri)"),
            {"session": session, "key": resource_key(uri), "uri": json.dumps(uri)},
        )


async def test_a_revision_that_fails_leaves_nothing_behind(store: Store, tmp_path: Path) -> None:
    broken = schema(tmp_path / "books", "0001", then="raise ZeroDivisionError")
    with pytest.raises(ZeroDivisionError):
        await migrate(store, [broken])
    assert not any(name.startswith("books") for name in await tables(store))


async def test_tasks_that_migrate_at_once_are_safe(empty: str) -> None:
    done: list[dict[str, str]] = []

    async def run() -> None:
        async with open_store(empty, service="test", embedded=True, bounds=Bounds()) as store:
            done.append(await migrate(store, [SCHEMA]))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(run)
    assert sorted(done, key=len) == [{}, {}, {}, {"catalog": SCHEMA.newest()}]


async def test_processes_that_migrate_at_once_are_safe(empty: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from mcpfleet.catalog.tables import SCHEMA\n"
        "from mcpfleet.store.settings import Bounds\n"
        "from mcpfleet.store.engine import open_store\n"
        "from mcpfleet.store.migrate import migrate\n"
        "async def main():\n"
        "    async with open_store(sys.argv[1], service='test', embedded=True, bounds=Bounds()) as store:\n"
        "        print(await migrate(store, [SCHEMA]))\n"
        "asyncio.run(main())\n"
    )
    with anyio.fail_after(60):
        processes = [
            await asyncio.create_subprocess_exec(sys.executable, "-c", program, empty, stdout=asyncio.subprocess.PIPE)
            for _ in range(3)
        ]
        outputs = [(await process.communicate())[0].decode().strip() for process in processes]
    assert sorted(outputs) == [str({"catalog": SCHEMA.newest()}), "{}", "{}"]
