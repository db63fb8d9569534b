"""Hot reload: workers with the changed files start beside the old ones, which serve until the new ones are ready.

If the new files cannot be imported, nothing changes but a line on the screen.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from mcpfleet.cli.child import Child
from mcpfleet.cli.dev_files import SourceFiles
from mcpfleet.cli.dev_screen import say
from mcpfleet.cli.fleet import FleetProcesses


class Keeper(Protocol):
    """Keeps processes running."""

    async def keep_on(self, child: Child) -> None:
        """Start a process that has ended again, and whenever it dies, until it is released."""

    def release(self, child: Child) -> None:
        """Start a process no more once it has ended."""


class Reload:
    """Replaces the workers of a fleet whenever its application's files change."""

    def __init__(self, fleet: FleetProcesses, keeper: Keeper) -> None:
        """Replace nothing yet.

        Args:
            fleet: its workers are ready.
            keeper: keeps the workers that have taken over.
        """
        self._fleet = fleet
        self._keeper = keeper
        self._files = SourceFiles()

    async def run(self) -> None:
        """Replace the workers after every change, until cancelled. A change abandons the attempt of the one before."""
        async with anyio.create_task_group() as tasks:
            await tasks.start(self._files.run)
            for worker in self._fleet.workers:
                self._learn_files(worker)
            names: set[str] = set()
            while True:
                names |= set(await self._files.changed())
                async with anyio.create_task_group() as attempt:
                    attempt.start_soon(self._abandon, attempt)
                    await self._replace(tasks, names)
                    names = set()
                    attempt.cancel_scope.cancel()

    async def _abandon(self, attempt: TaskGroup) -> None:
        """End an attempt once a file changes again: its workers have imported an old one."""
        await self._files.wait()
        attempt.cancel_scope.cancel()

    async def _replace(self, tasks: TaskGroup, names: Collection[str]) -> None:
        """Start new workers, the first alone, and have them take over once all are ready."""
        said = ", ".join(sorted(names))
        fresh: list[Child] = []
        try:
            for numbers in (range(1), range(1, len(self._fleet.workers))):
                started = [self._fleet.successor(number) for number in numbers]
                fresh += started
                self._fleet.passing += started
                for worker in started:
                    await worker.start()
                    tasks.start_soon(self._hear, worker)
                for worker in started:
                    if not await worker.wait_ready():
                        say(f"{said} changed, but {self._why_not(worker)}; the former version still serves", "yellow")
                        return
            self._take_over(tasks, fresh)
            say(f"{said} changed: the workers run the new version", "cyan")
        finally:
            with anyio.CancelScope(shield=True):
                for worker in fresh:
                    self._learn_files(worker)
                    if worker in self._fleet.workers:
                        continue
                    if worker.ready.is_set():  # it has taken calls
                        tasks.start_soon(self._see_off, worker)
                    else:
                        await worker.kill()
                        self._fleet.passing.remove(worker)

    async def _hear(self, worker: Child) -> None:
        """Read a new worker's output; once it has taken over, it is kept like every other."""
        await worker.listen()
        if worker in self._fleet.workers:
            await self._keeper.keep_on(worker)

    def _take_over(self, tasks: TaskGroup, fresh: Sequence[Child]) -> None:
        """Have the new workers count as the fleet's, and the old ones drain."""
        for number, worker in enumerate(fresh):
            old, self._fleet.workers[number] = self._fleet.workers[number], worker
            self._fleet.passing.remove(worker)
            self._fleet.passing.append(old)
            self._keeper.release(old)
            tasks.start_soon(self._see_off, old)

    async def _see_off(self, worker: Child) -> None:
        """Have a worker that serves no longer drain: it finishes its calls, and ends."""
        worker.signal(signal.SIGTERM)
        await worker.wait()
        self._fleet.passing.remove(worker)

    def _learn_files(self, worker: Child) -> None:
        report = self._fleet.report_of(worker)
        if report is not None:
            self._files.add(report.files, report.began)

    def _why_not(self, worker: Child) -> str:
        report = self._fleet.report_of(worker)
        if report is not None and report.mistake is not None:
            return f"cannot be imported: {report.mistake.message}"
        return f"its worker ended with code {worker.exit_code}"
