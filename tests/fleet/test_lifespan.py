"""A lifespan in a worker's own process: how the process ends when it fails."""

import json
from pathlib import Path

import pytest

from mcpfleet.cli.fleet import StartFailed
from mcpfleet.process.errors import leaves
from mcpfleet.testing.fleet import Fleet

SHOP = '''
from collections.abc import AsyncIterator

from mcpfleet.app import App

app = App("shop", version="1")


@app.lifespan
async def open_the_shop() -> AsyncIterator[None]:
    await key()
    yield


async def key() -> None:
    raise ConnectionRefusedError("no database")


@app.tool()
async def add(left: int, right: int) -> int:
    """Add."""
    return left + right
'''


@pytest.mark.rule("X68")
async def test_a_worker_whose_lifespan_cannot_be_entered_says_so_in_one_line_and_exits_with_1(
    tmp_path: Path,
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    with pytest.RaisesGroup(StartFailed, flatten_subgroups=True) as caught:
        await Fleet(tmp_path / "shop.py").__aenter__()
    assert "worker 1 ended with code 1" in str(leaves(caught.value)[0])
    logs = "\n".join(caught.value.__notes__).splitlines()
    lines = [json.loads(line) for line in logs if line.startswith("{")]
    [error] = [line for line in lines if line["level"] == "error"]
    assert error["event"] == "lifespan failed"
    place = f"shop.open_the_shop ({tmp_path}/shop.py:9)"
    assert error["error"] == f"the lifespan {place} failed: ConnectionRefusedError: no database"
    assert [line for line in lines if line["event"] == "announced"] == []
