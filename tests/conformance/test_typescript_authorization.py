"""The official TypeScript client gets a token by nothing but an endpoint's URL, and calls with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import anyio
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.kit.issuer import issuer
from tests.kit.node import NODE, environment, install

pytestmark = pytest.mark.conformance

PROJECT = Path(__file__).with_name("typescript")
APP = Path(__file__).parents[1] / "fleet" / "guarded_app.py"


async def test_it_finds_the_authorization_server_by_the_challenge(tmp_path: Path) -> None:
    """M62, M63: metadata, registration, consent with PKCE for this resource, a token, and the calls that it is for."""
    (tmp_path / "node_modules").symlink_to(install(PROJECT) / "node_modules")
    program = shutil.copy(PROJECT / "authorize.mjs", tmp_path)
    async with issuer() as made:
        guarded = {"MCPFLEET_AUTHORIZATION": "jwt", "MCPFLEET_ISSUER": made.url}
        async with Fleet(APP, environment=guarded) as fleet:
            with anyio.fail_after(60):
                done = await anyio.run_process([str(NODE), str(program), fleet.urls[0]], env=environment(), check=False)
            assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
            shown = json.loads(done.stdout)
            assert (shown["refused"], shown["version"]) == ("UnauthorizedError", "2026-07-28")
            assert shown["who"]["subject"] == "ann"
            assert shown["who"]["scopes"] == ["books:read", "books:write"]
            assert shown["written"] == "written"
            asked = {"resource": fleet.urls[0], "scope": "books:read books:write", "code_challenge_method": "S256"}
            assert shown["sent"] == [asked]
