"""Known revocations, when authorization checks many credentials at once."""

from __future__ import annotations

import secrets

import anyio

from mcpfleet.authorization.repository import RevocationRepository
from mcpfleet.authorization.revocations import KnownRevocations
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.bus.service import bus_of
from mcpfleet.contracts.authorization import Revoke
from mcpfleet.process.service import Process
from mcpfleet.store.engine import Store
from tests.contract.store.statements import statements


class Late(RevocationRepository):
    """A repository whose answer to a reading takes as long as the test likes."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.go_on = anyio.Event()
        self.go_on.set()
        self.readings = 0

    async def number(self) -> int:
        found = await super().number()
        self.readings += 1
        await self.go_on.wait()
        return found


async def opened(store: Store) -> tuple[Late, KnownRevocations]:
    process = Process("authorization", AuthorizationSettings())
    repository = Late(store)
    bus = bus_of(process, "authorization")
    revocations = KnownRevocations(repository, bus, process)
    await revocations.refresh()
    return repository, revocations


async def test_one_reading_serves_all_credentials_that_waited_for_it(store: Store) -> None:
    """A revocation has thousands ask at once, each of whom would cost the store a reading of its own."""
    repository, revocations = await opened(store)
    repository.go_on = anyio.Event()
    with statements() as seen:
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(revocations.learn)
            await anyio.wait_all_tasks_blocked()
            repository.go_on.set()
    assert len(seen) <= 2, "that of the first, and that of all who came while it went on"


async def test_a_credential_waits_for_a_reading_that_began_after_it_was_checked(store: Store) -> None:
    """One that is under way may have seen less than was revoked before the check."""
    repository, revocations = await opened(store)
    before, repository.go_on = repository.readings, anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(revocations.learn)
        with anyio.fail_after(5):
            while repository.readings == before:  # noqa: ASYNC110  # the store has no event of ours
                await anyio.sleep(0.001)
        assert await repository.revoke(Revoke(kind="subject", name="ann", id=secrets.token_hex(16))) == 1
        tasks.start_soon(revocations.learn)
        await anyio.wait_all_tasks_blocked()
        repository.go_on.set()
    assert revocations.number == 1


async def test_a_reading_that_was_given_up_serves_nobody(store: Store) -> None:
    repository, revocations = await opened(store)
    await repository.revoke(Revoke(kind="subject", name="ann", id=secrets.token_hex(16)))
    repository.go_on = anyio.Event()
    async with anyio.create_task_group() as tasks, anyio.create_task_group() as impatient:
        impatient.start_soon(revocations.learn)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(revocations.learn)
        await anyio.wait_all_tasks_blocked()
        impatient.cancel_scope.cancel()
        repository.go_on.set()
    assert revocations.number == 1
