"""The files whose changes restart the workers of `mcpfleet dev`."""

from __future__ import annotations

import time
from pathlib import Path

import anyio

from mcpfleet.cli.dev_files import SourceFiles

WITHIN = 30.0


async def test_a_file_of_configuration_is_watched_alone(tmp_path: Path) -> None:
    """Servers may write others beside it; a Python file counts as ever."""
    configuration, other = tmp_path / "fleet.toml", tmp_path / "memory.json"
    configuration.write_text("a = 1")
    files = SourceFiles()
    async with anyio.create_task_group() as tasks:
        await tasks.start(files.run)
        files.add([str(configuration)], time.time() + 60)
        with anyio.fail_after(WITHIN):
            told: set[str] = set()
            while not told:  # a change before the folder is watched is not heard
                other.write_text("{}")
                configuration.write_text("a = 2")
                with anyio.move_on_after(1.0):
                    told = await files.changed()
        assert told == {"fleet.toml"}
        tasks.cancel_scope.cancel()


async def test_a_change_of_a_configuration_before_it_is_watched_is_told(tmp_path: Path) -> None:
    configuration = tmp_path / ".mcp.json"
    configuration.write_text("{}")
    files = SourceFiles()
    async with anyio.create_task_group() as tasks:
        await tasks.start(files.run)
        files.add([str(configuration)], time.time() - 60)
        with anyio.fail_after(WITHIN):
            assert await files.changed() == {".mcp.json"}
        tasks.cancel_scope.cancel()
