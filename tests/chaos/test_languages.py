"""The short form of a message file that changes over many streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.languages import change, expected


@pytest.mark.rule("X32", "X38")
@pytest.mark.timeout(120)
async def test_a_changed_message_file_tells_the_streams_of_its_language_once_and_no_other(tmp_path: Path) -> None:
    assert await change(200, tmp_path) == expected(200)
