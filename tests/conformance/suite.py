"""The official conformance suite as a process: what it is asked to run, its verdict, and what each check said."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio

from mcpfleet.testing.fleet import Fleet
from tests.kit.balancer import Balancer
from tests.kit.node import NODE, environment

REVISION = "2026-07-28"
"""The revision whose requirements are run, at that revision's wire."""

PROGRAM = Path("node_modules/@modelcontextprotocol/conformance/dist/index.js")
"""The suite's command line, in the folder where its npm project is installed."""

FAILED = frozenset({"FAILURE", "WARNING"})
"""The statuses that count as failed."""

_AT_ONCE = 4
"""Scenarios that run side by side; each is a process, and waits for most of its time."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
RESULT = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that a scenario looked at."""

    scenario: str
    id: str
    status: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """How one run ended."""

    accepted: bool
    """Nothing has failed."""
    said: str
    """The end of the suite's report."""
    checks: Mapping[str, tuple[Check, ...]]
    """The checks of each scenario; none where it broke down."""

    def explained(self) -> str:
        """Say what was wrong, a line a check, for a person to read."""
        wrong = [
            f"{check.status} {check.scenario}:{check.id}: {check.message}"
            for checks in self.checks.values()
            for check in checks
            if check.status in FAILED
        ]
        return "\n".join([self.said, "", *wrong])


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The suite, ready to run against one server."""

    installed: Path
    """The folder that holds the suite's `node_modules`."""
    url: str
    results: Path
    """A folder for what the runs leave behind."""

    revision: str = REVISION
    """The revision that is spoken."""

    async def required(self) -> Verdict:
        """Run all that the revision requires; what it runs beyond that is not in the verdict."""
        return await self._run("required", "--requirements", self.revision)

    async def all(self) -> Verdict:
        """Run all that there is of a revision, where no set of it is required."""
        return await self._run("all", "--spec-version", self.revision)

    async def scenario(self, name: str) -> Verdict:
        """Run one scenario, which the revision need not require."""
        # Without force, a scenario of an extension belongs to no revision and is left out as passed.
        return await self._run(name, "--scenario", name, "--spec-version", self.revision, "--force")

    async def scenarios(self, names: Iterable[str]) -> dict[str, Verdict]:
        """Run scenarios side by side, a few at a time; returns their verdicts by name."""
        verdicts: dict[str, Verdict] = {}
        places = anyio.CapacityLimiter(_AT_ONCE)

        async def run(name: str) -> None:
            async with places:
                verdicts[name] = await self.scenario(name)

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(run, name)
        return verdicts

    async def _run(self, name: str, *what: str) -> Verdict:
        results = self.results / name
        command = [str(NODE), str(self.installed / PROGRAM), "server", "--url", self.url, *what]
        command += ["--output-dir", str(results)]
        done = await anyio.run_process(command, env=environment(), check=False)
        report = COLOURS.sub("", (done.stdout + done.stderr).decode(errors="replace"))
        return Verdict(
            accepted=done.returncode == 0,
            said=report.rpartition("=== SUMMARY ===")[2].strip()[-6000:],
            checks=_read(results),
        )


@asynccontextmanager
async def through_three_edges(
    app: Path, installed: Path, results: Path, *, workers: int
) -> AsyncIterator[tuple[Suite, Balancer]]:
    """A suite against a fleet of an application's, behind a balancer without affinity."""
    async with Fleet(target=app, edges=3, workers=workers) as fleet, Balancer(fleet.urls) as balancer:
        yield Suite(installed=installed, url=balancer.url, results=results), balancer


def _read(results: Path) -> dict[str, tuple[Check, ...]]:
    """Read what a run wrote: one folder a scenario, named after it and the time."""
    found = results.iterdir() if results.is_dir() else ()
    folders = {match["scenario"]: folder for folder in found if (match := RESULT.fullmatch(folder.name))}
    return {scenario: _checks(scenario, folder / "checks.json") for scenario, folder in sorted(folders.items())}


def _checks(scenario: str, file: Path) -> tuple[Check, ...]:
    """Read one scenario's checks; a scenario that broke down has written none."""
    if not file.exists():
        return ()
    return tuple(
        Check(scenario=scenario, id=check["id"], status=check["status"], message=check.get("errorMessage", ""))
        for check in json.loads(file.read_text())
    )
