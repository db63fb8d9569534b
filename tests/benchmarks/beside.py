"""Two trees in alternating rounds: whether this one is slower than another, such as the one before a change.

The other tree is a checkout. Its own `.venv` runs it; a checkout that has none is run by this Python, with the
checkout's folders first on the path. A fleet of each tree runs all the time, and each round loads one after the other.
This tree is first in the first round, the other one in the next. So a machine that gets slower harms both alike.

Each round gives a ratio, this tree's figure by the other's. The table has the median of the ratios and its 95 %
confidence interval. The interval's ends are two of the ratios themselves (order statistics of the binomial
distribution), so it holds however the ratios are distributed. This tree is "not slower" where the lower end is at least
0.97.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import anyio
import psutil
from anyio.streams.text import TextReceiveStream
from rich.console import Console
from rich.table import Table

from tests.kit.tree import ROOT

ROUNDS: Final = 20
"""Rounds at least: with fewer, the interval has nearly all ratios in it."""
NOT_SLOWER: Final = 0.97
"""The lower end that the interval must have."""
CONFIDENCE: Final = 0.95
_LAUNCH: Final = Path(__file__).with_name("launch.py")


@dataclass(frozen=True)
class Tree:
    """A checkout."""

    folder: Path
    commit: str
    """Its short id, and whether files differ from it."""
    command: tuple[str, ...]
    """Runs its Python."""
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Side:
    """A tree's fleet."""

    tree: Tree
    url: str
    edge: psutil.Process
    launcher: psutil.Process

    @property
    def processes(self) -> list[psutil.Process]:
        """The edge first, then all others that take part."""
        others = self.launcher.children(recursive=True)
        return [self.edge, *(process for process in others if process.pid != self.edge.pid)]


Measure: TypeAlias = Callable[[Side], Awaitable[Mapping[str, float]]]
"""Puts a load on a side for a round; returns figures by their names, first the rate that decides."""


@dataclass(frozen=True)
class Interval:
    """The median of ratios, and the interval that has the true median in it with a confidence of 95 %."""

    median: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """The words for a rate's interval."""
        if self.low >= NOT_SLOWER:
            return "not slower"
        return "slower" if self.high < NOT_SLOWER else "not decided: measure more rounds"


def interval_of(ratios: Sequence[float]) -> Interval:
    """Find the median and its interval; it is as wide as all ratios where they are too few."""
    ordered, below, rank = sorted(ratios), 0.0, 1
    for place in range(len(ordered) // 2):
        below += math.comb(len(ordered), place) / 2 ** len(ordered)
        if below > (1 - CONFIDENCE) / 2:
            break
        rank = place + 1
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[-rank])


def add_option(parser: argparse.ArgumentParser) -> None:
    """Have a benchmark take `--beside`."""
    parser.add_argument("--beside", metavar="TREE", type=Path, help="measure this tree beside a checkout, and no other")


def rounds_of(options: argparse.Namespace, otherwise: int) -> int:
    """Say how many rounds the options mean: two trees need twenty at least."""
    rounds: int | None = options.rounds
    if options.beside is None:
        return otherwise if rounds is None else rounds
    if rounds is not None and rounds < ROUNDS:
        raise SystemExit(f"two trees need {ROUNDS} rounds at least")
    return ROUNDS if rounds is None else rounds


def tree_at(folder: Path) -> Tree:
    """Look at a checkout."""
    folder = folder.resolve()
    python = folder / ".venv" / "bin" / "python"
    environment = dict(os.environ)
    if not python.exists():
        python = Path(sys.executable)
        environment["PYTHONPATH"] = os.pathsep.join(str(folder / root) for root in ("services", "shared"))
    return Tree(folder, _commit(folder), (str(python), "-P", str(_LAUNCH)), environment)


def _commit(folder: Path) -> str:
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    commit = git("rev-parse", "--short", "HEAD") or "no commit"
    return f"{commit} and changes" if git("status", "--porcelain", "--untracked-files=no") else commit


@asynccontextmanager
async def both(other: Path, application: Path, *settings: Mapping[str, str]) -> AsyncIterator[tuple[Side, Side]]:
    """Run a fleet of this tree and one of another.

    Args:
        other: the checkout.
        application: what both serve.
        settings: for the fleets' processes; one for both, or one for each.
    """
    ours, theirs = settings if len(settings) > 1 else settings * 2 or ({}, {})
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(_running(tree_at(ROOT), application, ours))
        yield first, await stack.enter_async_context(_running(tree_at(other), application, theirs))


@asynccontextmanager
async def _running(tree: Tree, application: Path, settings: Mapping[str, str]) -> AsyncIterator[Side]:
    command = [*tree.command, str(application), json.dumps(dict(settings))]
    async with await anyio.open_process(command, cwd=tree.folder, env=tree.environment, stderr=None) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield _side(tree, json.loads(await TextReceiveStream(process.stdout).receive()), process.pid)
        finally:
            with anyio.CancelScope(shield=True):
                await process.stdin.aclose()
                await process.wait()


def _side(tree: Tree, said: Mapping[str, Any], pid: int) -> Side:
    if not Path(said["code"]).resolve().is_relative_to(tree.folder):
        raise SystemExit(f"{tree.folder} runs the code of another tree: {said['code']}")
    return Side(tree, said["url"], psutil.Process(said["edge"]), psutil.Process(pid))


class Comparison:
    """Measures two trees, and prints how they compare."""

    def __init__(self, title: str, other: Path, rounds: int) -> None:
        self._rounds = rounds
        self._rows: list[tuple[str, ...]] = []
        trees = (tree_at(ROOT), tree_at(other))
        self._title = f"{title}: {' beside '.join(tree.commit for tree in trees)}, {rounds} rounds"
        for tree in trees:
            say(f"{tree.commit}: {tree.folder}")

    async def measure(self, name: str, sides: tuple[Side, Side], measure: Measure) -> None:
        """Load both sides in alternating rounds; the first load of each warms it up, and is forgotten."""
        ours: list[Mapping[str, float]] = []
        theirs: list[Mapping[str, float]] = []
        order = [*zip(sides, (ours, theirs), strict=True)]
        for side in sides:
            await measure(side)
        for _ in range(self._rounds):
            for side, found in order:
                found.append(await measure(side))
            order.reverse()
        for figure in ours[0]:
            self._add(name, figure, [each[figure] for each in ours], [each[figure] for each in theirs])

    def _add(self, name: str, figure: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
        ratio = interval_of([this / that for this, that in zip(ours, theirs, strict=True)])
        is_rate = figure.endswith("/s")
        self._rows.append(
            (
                name,
                figure,
                f"{statistics.median(ours):,.0f}",
                f"{statistics.median(theirs):,.0f}",
                f"{ratio.median:.3f}",
                f"{ratio.low:.3f} to {ratio.high:.3f}",
                ratio.verdict if is_rate else "",
            )
        )
        end = f": {ratio.verdict}" if is_rate else ""
        say(f"{name}, {figure}: {ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f}){end}")

    def show(self) -> None:
        """Print the table."""
        table = Table(title=self._title, highlight=False)
        for heading in ("", "figure", "this", "that", "this/that", "95 % interval", "verdict of a rate"):
            table.add_column(heading, justify="left" if heading in ("", "figure", "verdict of a rate") else "right")
        for row in self._rows:
            table.add_row(*row)
        Console(width=140).print(table)


def say(text: str) -> None:
    """Print a line."""
    Console(width=140, highlight=False).print(text, markup=False)
