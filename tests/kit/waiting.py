"""Waiting for what another process does."""

from __future__ import annotations

from collections.abc import Callable

import anyio


async def until(holds: Callable[[], object], *, within: float = 10.0) -> None:
    """Wait until a condition over files or processes holds, which no event of ours announces.

    Raises:
        TimeoutError: it does not hold after `within` seconds.
    """
    with anyio.fail_after(within):
        while not holds():  # noqa: ASYNC110  # the other process has no event of ours
            await anyio.sleep(0.01)


async def pause() -> None:
    """Wait between two questions to a fleet that shares the test's loop: without a pause its services starve."""
    await anyio.sleep(0.02)
