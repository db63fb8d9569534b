"""Tasks made over raw sockets and polled to their ends, as a process of its own: `task_load.py URL CLIENTS SECONDS`.

Each client makes one task after the other. It polls after as many milliseconds as there are clients, and then at
pauses that grow by a quarter, whatever the server's speed and its advice. It prints one line of JSON: tasks that
completed rightly, the others, the seconds that all took, and each task's milliseconds from its call to the answer that
says that it has completed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import uvloop

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
GROWTH = 1.25
LONGEST = 0.25
PATIENCE = 60.0


class Client:
    """One connection that makes tasks, one after the other."""

    def __init__(self, url: str, pause: float) -> None:
        parts = urlsplit(url)
        self._host, self._port, self._path, self._netloc = parts.hostname, parts.port, parts.path, parts.netloc
        self._pause = pause

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)

    async def ask(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and take its message."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._netloc}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {VERSION}\r\n"
            f"Mcp-Method: {method}\r\nMcp-Name: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._answer()
        if answer.startswith((b"event:", b"data:", b"id:", b":")):
            answer = answer.partition(b"data: ")[2].partition(b"\n")[0]
        message: dict[str, Any] = json.loads(answer)
        return message

    async def _answer(self) -> bytes:
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, found, rest = head.partition(b"content-length: ")
        if found:
            return await self._reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        body = b""
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            body += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
        return body

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
