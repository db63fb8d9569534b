"""The short form of the leftovers: one process, and a child of each kind for each way to end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.leftovers import ENDINGS, kinds, rounds


@pytest.mark.rule("B19")
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
async def test_no_process_of_a_hosted_child_is_left(tmp_path: Path) -> None:
    starts = len(kinds(tmp_path)) * len(ENDINGS)
    outcome = await rounds(starts, of_a_round=starts)
    assert (outcome.starts, outcome.left) == (starts, [])
