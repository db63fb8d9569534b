"""Every test of the bus runs once for each implementation of its port."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.fabric import Fabric, MemoryFabric, NatsFabric, living
from tests.kit.clock import Clock

QUICK = ProcessSettings(
    bus_question_every=0.5, bus_dead_after=0.5, bus_reconnect_jitter=0.1, bus_connect_timeout=1.0, log_level="debug"
)
"""Durations for tests: none so short that a busy machine reaches it by itself."""


@pytest.fixture
def settings() -> ProcessSettings:
    """The settings of the fabric and its buses; a module or a test may say otherwise."""
    return QUICK


@pytest.fixture(params=["memory", "nats"])
async def fabric(
    request: pytest.FixtureRequest, settings: ProcessSettings, tmp_path: Path, clock: Clock
) -> AsyncIterator[Fabric]:
    """A fabric whose buses the test makes; in memory nothing waits for its clock."""
    if request.param == "memory":
        clock.jump()
    kinds: dict[str, type[MemoryFabric | NatsFabric]] = {"memory": MemoryFabric, "nats": NatsFabric}
    made = kinds[request.param](tmp_path, settings)
    async with living(made):
        yield made
