"""The official scenarios of the Skills extension through three edges behind a balancer without affinity."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.conformance.suite import Verdict, through_three_edges
from tests.kit.node import install

pytestmark = pytest.mark.conformance

HERE = Path(__file__).parent
SCENARIOS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")
APP = """
from mcpfleet.app import App

app = App("skilled", version="1")
app.skills("skills", prefix="acme")
"""
SKILL = """---
name: {name}
description: "The skill {name}: see `templates/`."
license: Apache-2.0
metadata:
  version: "1.0"
  tags: [a, 'b', 3, 1.5, true, null]
  empty:
  text: >-
    Two lines
    in one.
---

# {name}
"""


def skills(root: Path) -> None:
    """Write 51 skills: the first by URI has folders and a binary file, so that lists have two pages."""
    for number in range(51):
        name = f"skill-{number:02}"
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(SKILL.format(name=name))
    first = root / "skill-00"
    (first / "templates/regional").mkdir(parents=True)
    (first / "templates/invoice.md").write_bytes(b"# Invoice\r\n")
    (first / "templates/regional/eu invoice.md").write_text("# EU\n")
    (first / "logo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))


async def _run(folder: Path, installed: Path, results: Path) -> dict[str, Verdict]:
    (folder / "app.py").write_text(APP)
    skills(folder / "skills")
    async with through_three_edges(folder / "app.py", installed, results, workers=2) as (suite, _):
        return await suite.scenarios(SCENARIOS)


@pytest.mark.rule("X20", "X21", "X22", "X23", "X24", "X26")
def test_all_checks_of_all_scenarios_succeed(tmp_path: Path) -> None:
    """No warning, and none is skipped."""
    verdicts = anyio.run(_run, tmp_path, install(HERE), tmp_path / "results")
    assert set(verdicts) == set(SCENARIOS)
    for name, verdict in verdicts.items():
        assert verdict.accepted, f"{name}: {verdict.explained()}"
        checks = [check for found in verdict.checks.values() for check in found]
        assert checks, name
        assert {check.status for check in checks} == {"SUCCESS"}, [each for each in checks if each.status != "SUCCESS"]
