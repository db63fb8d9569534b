"""A sealer of the operator's own: it has to prove itself, and is bounded in time and number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from structlog.testing import LogCapture

from mcpfleet.contracts.sealing import NotOurs, Unsealable
from mcpfleet.edge.protocol.own_sealer import AT_ONCE, BoundedSealer, SealerFailed, load
from mcpfleet.process.errors import ConfigurationError
from tests.kit.logs import captured

CIPHER = AESGCM(b"k" * 32)
NONCE = b"n" * 12


class Fine:
    """Seals as it should."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        return CIPHER.encrypt(NONCE, plain, associated)

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        try:
            return CIPHER.decrypt(NONCE, sealed, associated)
        except InvalidTag:
            raise NotOurs from None


class Deaf(Fine):
    """Takes any associated data."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        return await super().seal(plain, b"")

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        return await super().open(sealed, b"")


class Open(Fine):
    """Hides nothing."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        return plain + await super().seal(plain, associated)

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        return await super().open(sealed[len(sealed) // 2 - 8 :], associated)


class Trusting(Fine):
    """Takes altered bytes."""

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        try:
            return await super().open(sealed, associated)
        except NotOurs:
            return b"anything"


class Loud(Fine):
    """Raises another error for altered bytes."""

    async def open(self, sealed: bytes, associated: bytes) -> bytes:
        try:
            return CIPHER.decrypt(NONCE, sealed, associated)
        except InvalidTag:
            raise ValueError("altered") from None


class Away(Fine):
    """Has no keys now."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        del plain, associated
        raise Unsealable("the vault is sealed")


class Hanging(Fine):
    """Never answers."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        del plain, associated
        await anyio.sleep_forever()
        return b""


class Broken(Fine):
    """Fails."""

    async def seal(self, plain: bytes, associated: bytes) -> bytes:
        del plain, associated
        raise RuntimeError("no disk")


class Silent(Fine):
    """Returns no bytes."""

    async def seal(self, plain: bytes, associated: bytes) -> Any:
        del plain, associated


class Sync:
    """Has plain functions."""

    def seal(self, plain: bytes, associated: bytes) -> bytes:
        return plain + associated

    def open(self, sealed: bytes, associated: bytes) -> bytes:
        return sealed + associated


def failing() -> Any:
    """Fail."""
    raise RuntimeError("no vault")


def sealer(own: Any) -> BoundedSealer:
    return BoundedSealer(own, log=captured(LogCapture()))


@pytest.mark.rule("X73")
async def test_what_it_sealed_opens_for_the_same_use_until_its_time_ends() -> None:
    sealing = sealer(Fine())
    await sealing.check()
    text = await sealing.seal({"a": [1, None]}, bound=b"use", lasts=60)
    assert await sealing.open(text, bound=b"use") == {"a": [1, None]}
    for opened, bound in ((text, b"other"), (text[:-2], b"use"), ("", b"use"), ("AQ", b"use"), ("\u2028", b"use")):
        with pytest.raises(NotOurs):
            await sealing.open(opened, bound=bound)
    with pytest.raises(NotOurs):
        await sealing.open(await sealing.seal(1, bound=b"", lasts=-1), bound=b"")


@pytest.mark.rule("X73")
@pytest.mark.parametrize(
    ("own", "why"),
    [
        (Deaf, "took other associated bytes"),
        (Open, "does not hide"),
        (Trusting, "took altered bytes"),
        (Loud, "must raise NotOurs, and raised SealerFailed: ValueError"),
        (Away, "a round trip failed: Unsealable: the vault is sealed"),
        (Hanging, "no answer within 250 ms"),
        (Broken, "RuntimeError: no disk"),
        (Silent, "returned NoneType, and must return bytes"),
    ],
)
async def test_an_edge_does_not_start_with_one_that_does_not_seal(own: Callable[[], Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^MCPFLEET_SEALER: ") as raised:
        await sealer(own()).check()
    assert why in str(raised.value)


@pytest.mark.rule("X73")
async def test_each_call_has_a_time_limit_and_so_many_run_at_once() -> None:
    sealing, refused = sealer(Hanging()), list[str]()

    async def seal() -> None:
        with pytest.raises(Unsealable) as raised:
            await sealing.seal(1, bound=b"", lasts=60)
        refused.append(str(raised.value))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE + 1):
                tasks.start_soon(seal)
    assert refused == [f"{AT_ONCE} calls run already"] + ["no answer within 250 ms"] * AT_ONCE
    await sealer(Fine()).check()


@pytest.mark.rule("X73")
async def test_another_error_is_a_fault_of_ours() -> None:
    with pytest.raises(SealerFailed, match="RuntimeError: no disk"):
        await sealer(Broken()).seal(1, bound=b"", lasts=60)


@pytest.mark.rule("X73")
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("nothing", "must be module:object"),
        ("tests.unit.edge.protocol.test_own_sealer:nothing", "cannot import"),
        ("tests.unit.edge.protocol.test_own_sealer:failing", "raised RuntimeError: no vault"),
        ("tests.unit.edge.protocol.test_own_sealer:Sync", "async def seal(self, …, associated)"),
    ],
)
def test_a_setting_that_makes_no_sealer_is_told(target: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_SEALER") as raised:
        load(target)
    assert why in str(raised.value)
