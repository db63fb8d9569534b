"""Fixtures of all kinds of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.clock import clock, jumping
from tests.kit.passed import pytest_addoption, pytest_configure, pytest_itemcollected

__all__ = ["clock", "jumping", "pytest_addoption", "pytest_configure", "pytest_itemcollected"]


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the commands of tests from this user's cache of names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
