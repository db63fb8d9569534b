"""The short form of the upgrade: everything is replaced once."""

from __future__ import annotations

import pytest

from tests.chaos.upgrade import is_clean, upgrade


@pytest.mark.timeout(180)
async def test_an_upgrade_fails_no_call_ends_streams_cleanly_and_tells_each_change_once() -> None:
    found = await upgrade(1)
    assert is_clean(found), found
    assert min(found.calls.values()) > 5, found.calls
