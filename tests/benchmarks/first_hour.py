"""A stranger's first hour, beside FastMCP: how long the first steps take, and how much is typed for them.

    .venv/bin/python -m tests.benchmarks.first_hour --rounds 3

Each program is installed once from its lock into a new environment (with `--install`), and then does each task of a
terminal in alternating rounds. Times are CPU seconds of a command with all its processes, the median of the rounds: a
machine that does more than this has little influence on them. Lines are those of the applications in
docs/coming-from-fastmcp.md, without empty ones.
"""

from __future__ import annotations

import argparse
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.kit.pages import headings, section, titled
from tests.kit.ports import free_port
from tests.kit.tree import ROOT
from tests.kit.venv import environment_of

PAGE: Final = "docs/coming-from-fastmcp.md"
LOCK: Final = ROOT / "tests" / "fleet" / "fastmcp" / "requirements.lock"
WITHIN: Final = 120.0
"""Seconds for one command."""


@dataclass(frozen=True)
class Program:
    """One of the two."""

    title: str
    python: Path
    serve: tuple[str, ...]
    stdio: tuple[str, ...]
    lock: Path

    def command(self, *words: str) -> list[str]:
        """Its command line."""
        return [str(self.python.with_name(self.title.lower())), *words]


def spent() -> float:
    """CPU seconds of all processes that have ended so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(words: list[str], folder: Path) -> float:
    """Run a command to its end; returns the CPU seconds that it took."""
    began = spent()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=WITHIN, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return spent() - began


@contextmanager
def serving(program: Program, folder: Path) -> Iterator[str]:
    """Serve the first application on a free port; its URL once the port answers."""
    port, quiet = free_port(), subprocess.DEVNULL
    words = program.command(*program.serve, "--port", str(port))
    with subprocess.Popen(words, cwd=folder, stdout=quiet, stderr=quiet) as process:
        try:
            while process.poll() is None and not _listens(port):
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def first_call(program: Program, folder: Path) -> float:
    """Start a server, call its tool from a terminal, and end the server."""
    began = spent()
    with serving(program, folder) as url:
        run(program.command("call", url, "add", "left=2", "right=3"), folder)
    return spent() - began


def tasks(program: Program, folder: Path) -> dict[str, Callable[[], float]]:
    """The measurements of each round, but for calls of a server that runs already."""
    check = ("check", "server.py") if program.title == "mcpfleet" else ("inspect", "server.py")
    return {
        "`--version`": lambda: run(program.command("--version"), folder),
        "check a file without serving it": lambda: run(program.command(*check), folder),
        "serve, answer a first call, and end": lambda: first_call(program, folder),
    }


def measure(programs: list[Program], folders: dict[str, Path], rounds: int) -> dict[str, dict[str, float]]:
    """The median of each task's rounds, by task and program; the first round warms up, and is forgotten."""
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds + 1):
        for program in programs if number % 2 else reversed(programs):
            folder = folders[program.title]
            taken = {name: task() for name, task in tasks(program, folder).items()}
            with serving(program, folder) as url:
                run(program.command("list", url), folder)
                taken["list tools of a server that runs"] = run(program.command("list", url), folder)
                taken["call a tool of it"] = run(program.command("call", url, "add", "left=2", "right=3"), folder)
            if number:
                for name, seconds in taken.items():
                    found.setdefault(name, {}).setdefault(program.title, []).append(seconds)
    return {name: {title: statistics.median(each) for title, each in by.items()} for name, by in found.items()}


def lines(title: str) -> int:
    """The lines of all applications of the page, without empty ones."""
    code = "".join(block for heading in headings(PAGE) for block in titled(section(PAGE, heading), title))
    return sum(bool(line.strip()) for line in code.splitlines())


def packages(lock: Path) -> int:
    """The number of packages that a lock names."""
    return sum("==" in line for line in lock.read_text().splitlines() if not line.startswith(" "))


def install(program: Program, folder: Path) -> float:
    """Install what the lock names into a new environment; returns the CPU seconds."""
    began = spent()
    environment_of(program.lock, cache=folder, within=600)
    return spent() - began


def main(rounds: int, *, with_install: bool) -> None:
    """Measure, and print both side by side as a table of Markdown."""
    ours = Path(sys.executable)
    programs = [
        Program("FastMCP", environment_of(LOCK, within=600), ("run", "server.py", "--transport", "http"),
                ("run", "server.py"), LOCK),
        Program("mcpfleet", ours, ("dev", "server.py"), ("stdio", "server.py"), ROOT / "requirements.lock"),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="first-hour-") as made:
        folders = {program.title: Path(made) / program.title for program in programs}
        for program in programs:
            folders[program.title].mkdir()
            [code] = titled(section(PAGE, "A tool"), program.title)
            (folders[program.title] / "server.py").write_text(code)
        rows = [("packages to install", *(f"{packages(program.lock)}" for program in programs))]
        if with_install:
            rows.append(("install them", *(f"{install(each, folders[each.title]):.0f} s of CPU" for each in programs)))
        rows.append(("lines of the same applications", *(f"{lines(program.title)}" for program in programs)))
        for name, by in measure(programs, folders, rounds).items():
            rows.append((name, *(f"{by[program.title]:.1f} s of CPU" for program in programs)))
    table = Table("", *(program.title for program in programs), title=f"{os.cpu_count()} processors, {rounds} rounds")
    for row in rows:
        table.add_row(*row)
    Console(width=100, highlight=False).print(table)
    for row in rows:
        sys.stdout.write(f"| {' | '.join(row)} |\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--install", action="store_true", help="measure the installation too, which takes minutes")
    options = parser.parse_args()
    main(options.rounds, with_install=options.install)
