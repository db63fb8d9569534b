"""Calls between an edge and a worker run over a real NATS, with its users and permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcpfleet.process.settings import ProcessSettings
from tests.contract.bus.conftest import QUICK
from tests.contract.bus.fabric import Fabric, NatsFabric, living


@pytest.fixture
def settings() -> ProcessSettings:
    return QUICK


@pytest.fixture
async def fabric(settings: ProcessSettings, tmp_path: Path) -> AsyncIterator[Fabric]:
    async with living(NatsFabric(tmp_path, settings)) as made:
        yield made
