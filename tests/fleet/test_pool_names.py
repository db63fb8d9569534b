"""A pool is named after its App, whatever the file is called; a setting gives another name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mcpfleet.cli.app_pool import pool_of
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.testing.fleet import Fleet, launcher
from tests.kit.commands import mcpfleet

SERVER = """
from mcpfleet.app import App

print("an application may print")
app = App("My Shop")


@app.tool()
async def price() -> int:
    return 5
"""


@pytest.fixture
def server(tmp_path: Path) -> Path:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    return file


async def test_a_worker_and_nats_name_the_pool_after_the_app(server: Path) -> None:
    own = {"worker 1": {"MCPFLEET_POOL": ""}}  # it finds the name itself, and NATS lets no other in
    async with Fleet(server, own=own) as fleet:
        assert fleet.pool == "my-shop"
        done = await mcpfleet("call", fleet.urls[0], "price")
        assert done.stdout.strip() == "5"


async def test_a_setting_gives_the_pool_another_name(server: Path) -> None:
    async with Fleet(server, environment={"MCPFLEET_POOL": "store"}) as fleet:
        assert fleet.pool == "store"
        done = await mcpfleet("call", fleet.urls[0], "price")
        assert done.stdout.strip() == "5"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(
            "import os\nfrom mcpfleet.app import App\napp = App('a')\nos._exit(3)\n",
            "my_server.py: the import ends its process with code 3",
            id="it ends",
        ),
        pytest.param("app = App(", "my_server.py:1: SyntaxError: '(' was never closed", id="it is no Python"),
    ],
)
async def test_an_application_that_does_not_load_is_told_before_nats_starts(
    tmp_path: Path, text: str, why: str
) -> None:
    file = tmp_path / "my_server.py"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        await pool_of(str(file), launcher(), {})


async def test_a_name_that_is_no_token_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"MCPFLEET_POOL: 'My Shop' is not a pool's name"):
        await pool_of("server.py", launcher(), {"MCPFLEET_POOL": "My Shop"})
