"""Revocations: numbered without a gap, once for each id, and pruned when no credential is so old."""

from __future__ import annotations

import secrets

import anyio
from sqlalchemy import update

from mcpfleet.authorization.repository import PAGE, RevocationRepository
from mcpfleet.authorization.tables import revocations
from mcpfleet.contracts.authorization import Revocation, Revoke, revoked_name
from mcpfleet.contracts.principal import Principal
from mcpfleet.store.engine import Store


def revoke(name: str, kind: str = "subject", identifier: str | None = None) -> Revoke:
    return Revoke.model_validate({"kind": kind, "name": name, "id": identifier or secrets.token_hex(16)})


async def test_revocations_are_numbered_in_their_order(store: Store) -> None:
    repository = RevocationRepository(store)
    assert await repository.number() == 0
    assert [await repository.revoke(revoke(name)) for name in ("ann", "bob", "eve")] == [1, 2, 3]
    page = await repository.after(1)
    assert (page.number, page.complete) == (3, True)
    assert [kept.revocation.number for kept in page.kept] == [2, 3]
    first = (await repository.after(0)).kept[0].revocation
    assert first.concerns(Principal(subject="ann"))
    assert not first.concerns(Principal(subject="bob", client="ann", tenant="ann"))


async def test_the_name_is_not_kept(store: Store) -> None:
    repository = RevocationRepository(store)
    await repository.revoke(revoke("ann"))
    assert (await repository.after(0)).kept[0].revocation.key == revoked_name("subject", "ann")[1]


async def test_asking_twice_revokes_once(store: Store) -> None:
    repository, same = RevocationRepository(store), revoke("ann")
    assert [await repository.revoke(same), await repository.revoke(same)] == [1, 1]
    assert await repository.number() == 1


async def test_many_at_once_leave_no_gap_and_none_comes_late(store: Store) -> None:
    """A reader up to a number has all before it; otherwise an edge would skip later commits."""
    repository = RevocationRepository(store)
    same = revoke("twice")
    seen: list[list[int]] = []

    async def watch() -> None:
        known = 0
        while known < 21:
            page = await repository.after(known)
            numbers = [kept.revocation.number for kept in page.kept]
            assert numbers == list(range(known + 1, page.number + 1))
            seen.append(numbers)
            known = page.number

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            for number in range(20):
                tasks.start_soon(repository.revoke, revoke(str(number)))
            for _ in range(3):
                tasks.start_soon(repository.revoke, same)
    assert sum(map(len, seen)) == 21


async def test_they_come_in_pages(store: Store) -> None:
    async with store.write() as connection:
        from sqlalchemy import insert

        from mcpfleet.authorization.tables import counter
        from mcpfleet.store.sql import now

        for number in range(1, PAGE + 3):
            values = {"number": number, "kind": "subject", "key": "k", "id": f"{number:032x}", "at": now()}
            await connection.execute(insert(revocations).values(values))
        await connection.execute(update(counter).values(number=PAGE + 2))
    repository = RevocationRepository(store)
    page = await repository.after(0)
    assert (len(page.kept), page.complete) == (PAGE, False)
    rest = await repository.after(page.kept[-1].revocation.number)
    assert (len(rest.kept), rest.complete, rest.number) == (2, True, PAGE + 2)


async def test_what_no_credential_is_old_enough_for_is_pruned_and_numbers_go_on(store: Store) -> None:
    repository = RevocationRepository(store)
    await repository.revoke(revoke("ann"))
    await repository.revoke(revoke("bob"))
    async with store.write() as connection:
        aged = update(revocations).where(revocations.c.number == 1).values(at=revocations.c.at - 100)
        await connection.execute(aged)
    horizon = await repository.prune(50)
    page = await repository.after(0)
    assert [kept.revocation.number for kept in page.kept] == [2]
    assert page.kept[0].at > horizon
    assert await repository.revoke(revoke("eve")) == 3


async def test_a_policy_concerns_everybody_and_has_no_name(store: Store) -> None:
    repository = RevocationRepository(store)
    await repository.revoke(revoke("", "policy"))
    (kept,) = (await repository.after(0)).kept
    assert kept.revocation == Revocation(number=1, kind="policy", key="")
    assert kept.revocation.concerns(Principal())
