"""FastMCP as a client of skills: it verifies every file of every skill at every edge."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.conformance.test_official_suite_of_skills import APP, skills
from tests.kit.venv import environment_of

FASTMCP = Path(__file__).with_name("fastmcp")


@pytest.mark.rule("X20", "X21", "X22", "X28")
@pytest.mark.timeout(400)
async def test_fastmcp_verifies_all_skills_at_every_edge(tmp_path: Path) -> None:
    """51 skills, two pages, a binary file; its parser of the frontmatter is not ours."""
    python = await anyio.to_thread.run_sync(environment_of, FASTMCP / "requirements.lock")
    (tmp_path / "app.py").write_text(APP)
    skills(tmp_path / "skills")
    async with Fleet(target=tmp_path / "app.py", edges=3, workers=2) as fleet:
        command = [str(python), str(FASTMCP / "skills.py"), *fleet.urls]
        done = await anyio.run_process(command, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    expected = {f"skill://acme/skill-{n:02}/SKILL.md": 4 if n == 0 else 1 for n in range(51)}
    assert json.loads(done.stdout) == [expected] * 3
