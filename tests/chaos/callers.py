"""Callers that call at a steady rate whatever becomes of the fleet, and remember what each call was told."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import anyio

from tests.kit.raw import connected


class Told(StrEnum):
    """The answer of one call."""

    RESULT = "result"
    UNCERTAIN = "uncertain"
    NOT_RUN = "not run"
    NO_ANSWER = "no answer"
    """The connection ended, or the caller's patience did: it was told nothing."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Call:
    """One call, by the token that its effect leaves."""

    token: str
    asked: float
    ended: float
    told: Told
    text: str


@dataclass
class Callers:
    """An open loop: calls begin at their times, over one edge after another."""

    urls: list[str]
    """The edges' URLs; one that is leaving is taken out by whoever has it leave, as a balancer does."""
    rate: float
    """Calls a second."""
    patience: float = 30.0
    calls: list[Call] = field(default_factory=list)
    is_over: bool = False
    """Begin no more calls."""

    async def run(self, seconds: float) -> None:
        """Begin calls for so long, and wait until each has its answer."""
        began = time.monotonic()
        async with anyio.create_task_group() as tasks:
            for number in range(int(self.rate * seconds)):
                await anyio.sleep(max(0.0, began + number / self.rate - time.monotonic()))
                if self.is_over:
                    break
                tasks.start_soon(self._call, f"{began:.3f}-{number}", self.urls[number % len(self.urls)])

    async def _call(self, token: str, url: str) -> None:
        asked = time.monotonic()
        told, text = Told.NO_ANSWER, ""
        with anyio.move_on_after(self.patience):
            try:
                told, text = await self._ask(token, url)
            except (OSError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError) as error:
                text = type(error).__name__
        self.calls.append(Call(token, asked, time.monotonic(), told, text))

    async def _ask(self, token: str, url: str) -> tuple[Told, str]:
        async with connected(url) as connection:
            await connection.send("tools/call", {"name": "effect", "arguments": {"token": token}})
            answer = await connection.answer()
        message = answer.message
        if "error" in message:
            text = message["error"]["message"]
            promises = answer.status == 503 or "nothing was run" in text
            return (Told.NOT_RUN, text) if promises else (Told.OTHER, json.dumps(message["error"]))
        text = message["result"]["content"][0]["text"]
        if not message["result"]["isError"]:
            return Told.RESULT, text
        return (Told.UNCERTAIN if "uncertain" in text else Told.OTHER), text

    def counts(self) -> dict[Told, int]:
        """How many calls were told what."""
        counted = Counter(call.told for call in self.calls)
        return {told: counted[told] for told in Told}

    def effects(self, file: Path) -> tuple[int, int]:
        """How many effects in a file belong to calls that were told not to have run, and how many to calls twice."""
        mine = {call.token for call in self.calls}
        had = [token for token in (line.split()[0] for line in file.read_text().splitlines()) if token in mine]
        not_run = {call.token for call in self.calls if call.told is Told.NOT_RUN}
        return len(not_run.intersection(had)), len(had) - len(set(had))
