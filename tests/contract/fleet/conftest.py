"""Every test has an application of its own, and sees what its handlers do."""

from __future__ import annotations

import pytest

from tests.contract.fleet.app import ObservedApp


@pytest.fixture
def observed() -> ObservedApp:
    return ObservedApp()
