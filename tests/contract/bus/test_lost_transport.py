"""A link whose socket is closed beneath it, on the loop that processes run on."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import pytest

from mcpfleet.bus.errors import Unavailable
from mcpfleet.bus.nats import NatsLink
from mcpfleet.process.host import loop_factory
from tests.contract.bus.conftest import QUICK
from tests.contract.bus.fabric import NatsFabric, living


async def close_with_something_unsent(directory: Path) -> None:
    async with living(NatsFabric(directory, QUICK)) as fabric:
        link = await fabric.connector("edge", QUICK, "process").connect(lambda _verb, _subject: None)
        assert isinstance(link, NatsLink)
        link.client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
        link.publish("mcpfleet.catalog.snapshot", b"unsent")
        await link.close()
        with pytest.raises(Unavailable):
            link.publish("mcpfleet.catalog.snapshot", b"late")


@pytest.mark.rule("T37")
def test_a_link_that_is_lost_with_something_unsent_ends_nothing_else(tmp_path: Path) -> None:
    """A closed transport of uvloop raises RuntimeError, which ended the process that wanted to make another link."""
    anyio.run(partial(close_with_something_unsent, tmp_path), backend_options={"loop_factory": loop_factory()})
