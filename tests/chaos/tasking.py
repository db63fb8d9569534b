"""Clients that make tasks whatever becomes of the fleet, and hold every answer against what was promised."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2

from tests.kit.tasks import TaskClient, text_of

ENDS = ("completed", "failed", "cancelled")
AWAY = (502, 503, 504)
"""The statuses of an edge that cannot ask the other services."""


@dataclass
class Kept:
    """A task whose handle a client was given."""

    number: int
    task: str
    asked: float
    end: dict[str, Any] | None = None
    ended: float = 0.0


@dataclass
class Makers:
    """Clients that make one task after the other, and poll it at one edge after another until its end."""

    urls: Callable[[], list[str]]
    """The edges that are up."""
    seconds: Callable[[int], float]
    """How long a task takes, by its number."""
    seed: int
    kept: dict[int, Kept] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    """Handles that an edge did not know."""
    changed: list[str] = field(default_factory=list)
    """Ends that were others later, or that went back."""
    odd: list[str] = field(default_factory=list)
    """Answers that nothing of this explains."""
    told: Counter[int | str] = field(default_factory=Counter)
    """Answers by their HTTP status, and connections that ended."""
    longest: float = 0.0
    """Seconds for which one handle could not be read, at most, whichever edge was asked."""

    async def run(self, tasks: int, clients: int) -> None:
        """Make so many tasks with so many clients, and wait for all their ends."""
        numbers = iter(range(tasks))
        async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=200)) as http:
            async with anyio.create_task_group() as group:
                for client in range(clients):
                    group.start_soon(self._client, http, numbers, random.Random(self.seed * 1000 + client))
            await self.read_all(http)

    async def _client(self, http: httpx2.AsyncClient, numbers: Any, chance: random.Random) -> None:
        for number in numbers:
            kept = await self._make(http, number, chance)
            await self._follow(http, kept, chance)

    async def _make(self, http: httpx2.AsyncClient, number: int, chance: random.Random) -> Kept:
        """Have a task made; where its handle was lost, the same key gets it."""
        arguments = {"number": number, "seconds": self.seconds(number), "request": f"order-{self.seed}-{number}"}
        asked = time.monotonic()
        while True:
            answer = await self._ask(http, chance, "tools/call", {"name": "work", "arguments": arguments})
            if answer is not None and "result" in answer:
                if answer["result"].get("resultType") == "task":
                    kept = self.kept[number] = Kept(number, answer["result"]["taskId"], asked)
                    return kept
                if "may have been made" not in str(answer["result"]):
                    self.odd.append(str(answer))
            elif answer is not None:
                self.odd.append(str(answer))
            await anyio.sleep(0.1)

    async def _follow(self, http: httpx2.AsyncClient, kept: Kept, chance: random.Random) -> None:
        while kept.end is None:
            await anyio.sleep(0.1)
            await self._read(http, kept, chance)

    async def _read(self, http: httpx2.AsyncClient, kept: Kept, chance: random.Random) -> None:
        """Read a task, for as long as it takes until an edge can say what became of it."""
        began = time.monotonic()
        while (answer := await self._ask(http, chance, "tasks/get", {"taskId": kept.task})) is None:  # noqa: ASYNC110  # an edge says nothing of when
            await anyio.sleep(0.1)
        self.longest = max(self.longest, time.monotonic() - began)
        if "result" not in answer:
            self.unknown.append(f"{kept.number}: {answer}")
            return
        found = answer["result"]
        if kept.end is not None and found != kept.end:
            self.changed.append(f"{kept.number}: {kept.end} {found}")
        if found["status"] in ENDS and kept.end is None:
            kept.end, kept.ended = found, time.monotonic()

    async def _ask(
        self, http: httpx2.AsyncClient, chance: random.Random, method: str, params: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Ask any edge; none where it went, or says that it cannot ask the others now."""
        urls = self.urls()
        if not urls:
            return None
        try:
            answer = await TaskClient(http, chance.choice(urls)).post(method, params)
        except httpx2.TransportError as error:
            self.told[type(error).__name__] += 1
            return None
        self.told[answer.status_code] += 1
        if answer.status_code in AWAY:
            return None
        message: dict[str, Any] = answer.json()
        return message

    async def read_all(self, http: httpx2.AsyncClient) -> None:
        """Read every task once more, wherever: an end stays what it was."""
        chance = random.Random(self.seed)
        for kept in self.kept.values():
            await self._read(http, kept, chance)

    @property
    def wrong(self) -> list[Kept]:
        """Tasks whose end is not the right result."""
        return [
            kept
            for kept in self.kept.values()
            if kept.end is None or kept.end["status"] != "completed" or text_of(kept.end) != str(2 * kept.number)
        ]


@dataclass
class Notes:
    """The handlers' notes."""

    runs: dict[int, list[int]] = field(default_factory=dict)
    """The processes in which each task ran, in their order."""
    effects: Counter[str] = field(default_factory=Counter)
    """Times that the called system was called, by the steps' keys."""
    keys: dict[int, set[str]] = field(default_factory=dict)
    """The keys under which each task called it."""

    @classmethod
    def of(cls, path: Path) -> Notes:
        """Read them."""
        notes = cls()
        for line in path.read_text().splitlines():
            what, number, key, process, _ = line.split()
            if what == "run":
                notes.runs.setdefault(int(number), []).append(int(process))
            else:
                notes.effects[key] += 1
                notes.keys.setdefault(int(number), set()).add(key)
        return notes

    @property
    def doubled(self) -> list[int]:
        """Tasks that had two effects in a called system that knows the keys of its callers."""
        return [number for number, keys in self.keys.items() if len(keys) != 1 or "None" in keys]
