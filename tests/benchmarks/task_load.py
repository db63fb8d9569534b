"""Tasks made over raw sockets and polled to their ends, as a process of its own.

    .venv/bin/python -m tests.benchmarks.task_load URL CLIENTS SECONDS

Each client makes one task after the other. It polls after as many milliseconds as there are clients. Its pauses
then grow by a quarter, whatever the server's speed and its advice. It prints one line of JSON: tasks that
completed rightly, the others, and the seconds that all took. It also has each task's milliseconds from its call to the
answer that says that it has completed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import uvloop

from tests.kit.wire_bytes import Posts, lines, message, meta, read_body

META = meta("load", {"extensions": {"io.modelcontextprotocol/tasks": {}}})
GROWTH = 1.25
LONGEST = 0.25
PATIENCE = 60.0


class Client:
    """One connection that makes tasks, one after the other."""

    def __init__(self, url: str, pause: float) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        self._posts = Posts(parts.netloc, parts.path)
        self._pause = pause

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def ask(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and take its message."""
        self._writer.write(self._posts.post(message(method, params, META), lines(method, name)))
        answer = await read_body(self._reader)
        if answer.startswith((b"event:", b"data:", b"id:", b":")):
            answer = answer.partition(b"data: ")[2].partition(b"\n")[0]
        found: dict[str, Any] = json.loads(answer)
        return found

    async def task(self, number: int) -> float | None:
        """Have a number doubled; returns the milliseconds that it took, and None where the result is not right."""
        began = time.perf_counter()
        made = await self.ask("tools/call", "double", {"name": "double", "arguments": {"number": number}})
        if "result" not in made or "taskId" not in made["result"]:
            sys.stderr.write(f"{made}\n")
            return None
        task, pause = made["result"]["taskId"], self._pause
        while time.perf_counter() - began < PATIENCE:
            await asyncio.sleep(pause)
            pause = min(pause * GROWTH, LONGEST)
            found = await self.ask("tasks/get", task, {"taskId": task})
            if "result" not in found or found["result"]["status"] not in ("working", "submitted"):
                if found.get("result", {}).get("result", {}).get("content", [{}])[0].get("text") == str(2 * number):
                    return (time.perf_counter() - began) * 1e3
                sys.stderr.write(f"{found}\n")
                return None
        return None


class Load:
    """Clients that make tasks until a time."""

    def __init__(self) -> None:
        self.took: list[float] = []
        self.wrong = 0

    async def run(self, url: str, clients: int, seconds: float) -> None:
        """Make tasks with so many clients for so long."""
        until = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as tasks:
            for number in range(clients):
                tasks.create_task(self._client(Client(url, clients / 1e3), number, until))

    async def _client(self, client: Client, number: int, until: float) -> None:
        await client.connect()
        while time.perf_counter() < until:
            took = await client.task(number)
            if took is None:
                self.wrong += 1
            else:
                self.took.append(took)


async def main(url: str, clients: int, seconds: float) -> None:
    """Run the load, and print what came of it."""
    load = Load()
    started = time.perf_counter()
    await load.run(url, clients, seconds)
    elapsed = time.perf_counter() - started
    said = {"right": len(load.took), "wrong": load.wrong, "seconds": elapsed, "took": load.took}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
