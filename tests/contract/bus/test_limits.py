"""A message that is too large, or waits too long in our buffers, is an error that names its setting."""

from __future__ import annotations

import anyio
import pytest

from mcpfleet.bus.bus import Bus
from mcpfleet.bus.errors import TooLarge, Unavailable
from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.conftest import QUICK
from tests.contract.bus.fabric import Fabric, heard
from tests.kit.waiting import until

HINT = "hint.catalog.mcp"
LIMIT = 10_000


@pytest.fixture
def settings() -> ProcessSettings:
    return QUICK.model_copy(update={"bus_max_payload": LIMIT, "bus_pending_bytes": 200_000})


@pytest.mark.parametrize("line", [None, "1 5000 1790000000000 -", "1 " + "x" * 3000])
async def test_the_limit_counts_the_body_and_the_header_together(fabric: Fabric, line: str | None) -> None:
    """NATS closes the connection over a message that is too large; so none is sent, and the link lives on."""
    sizes: list[int] = []
    async with fabric.buses("edge", "catalog") as (edge, catalog):
        await edge.subscribe(HINT, lambda hint: sizes.append(len(hint.body)))
        await heard(edge)
        largest = LIMIT
        while True:
            try:
                catalog.publish(HINT, b"x" * largest, header=line)
            except TooLarge:
                largest -= 1
            else:
                break
        await until(lambda: sizes)
        with pytest.raises(TooLarge, match="MCPFLEET_BUS_MAX_PAYLOAD"):
            catalog.publish(HINT, b"x" * (largest + 1), header=line)
        assert catalog.is_up
        await heard(catalog)
    assert sizes == [largest]
    header = len(line or "")
    assert LIMIT - 100 - header <= largest <= LIMIT - header


async def test_a_request_that_is_too_large_has_not_run_and_is_not_asked_again(fabric: Fabric) -> None:
    async with fabric.buses("edge") as (edge,):
        with anyio.fail_after(0.4), pytest.raises(TooLarge) as raised:
            await edge.request("catalog.snapshot", b"x" * (LIMIT + 1), timeout=5, repeat=True)
        assert raised.value.setting == "MCPFLEET_BUS_MAX_PAYLOAD"
        assert edge._waiting == {}


async def refused(catalog: Bus, *, pause: float | None) -> Unavailable:
    """Publish until that is an error; with a pause the buffer can be written out in between."""
    for _ in range(100_000):
        try:
            catalog.publish(HINT, b"x" * 9000)
        except Unavailable as error:
            return error
        if pause is not None:
            await anyio.sleep(pause)
    raise AssertionError("900 MB were taken")


@pytest.mark.rule("invariant 7")
async def test_what_waits_for_the_server_is_bounded_and_more_is_an_error_at_once(fabric: Fabric) -> None:
    """A full socket must not make a publisher wait for ever; and once there is room it goes on."""
    async with fabric.buses("catalog") as (catalog,):
        assert "bytes wait" in str(await refused(catalog, pause=None))

        def takes_more() -> bool:
            try:
                catalog.publish(HINT, b"more")
            except Unavailable:
                return False
            return True

        await until(takes_more)
        assert catalog.is_up


async def test_a_server_that_takes_nothing_is_found_dead_with_a_full_buffer(fabric: Fabric) -> None:
    """Bytes that wait for a vanished peer hold up neither the finding nor the next link."""
    async with fabric.buses("catalog") as (catalog,):
        fabric.freeze()
        with anyio.fail_after(5):
            await refused(catalog, pause=0.0)
            await until(lambda: not catalog.is_up)
        fabric.thaw()
        with anyio.fail_after(5):
            await catalog.wait_up()
        await heard(catalog)
