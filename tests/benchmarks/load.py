"""A load on one endpoint over raw sockets, as a process of its own.

    .venv/bin/python -m tests.benchmarks.load URL CONNECTIONS SECONDS [TOKENS]

TOKENS is a file of bearer tokens, one a line; the connections use them in turn, beginning with any one. It prints one
line of JSON: the calls that were answered rightly, the others, and the seconds that they took. A client library would
cost more than the server.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from tests.kit.wire_bytes import Posts, lines, message, meta, read_body

TOOL = "add"
ARGUMENTS = {"left": 2, "right": 3}
OWN_INTERPRETER = {"PYTHONHASHSEED": "0"}
"""Settings of a measured fleet. Each process starts its own interpreter, as a user's does, and is no fork."""
RIGHT = b'"structuredContent":'


class Load:
    """Connections that call one after the other, until a time."""

    def __init__(self, url: str, tokens: Sequence[str] = ()) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname, parts.port
        body = message("tools/call", {"name": TOOL, "arguments": ARGUMENTS}, meta("load"))
        post, named = Posts(parts.netloc, parts.path).post, lines("tools/call", TOOL)
        bearers = [f"Authorization: Bearer {token}\r\n" for token in tokens] or [""]
        requests = [post(body, bearer + named) for bearer in bearers]
        begin = random.randrange(len(requests))
        self._requests = itertools.cycle([*requests[begin:], *requests[:begin]])
        self.right = 0
        self.wrong = 0

    async def run(self, connections: int, seconds: float) -> None:
        """Call over so many connections for so long."""
        until = time.perf_counter() + seconds
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(self._call(until))

    async def _call(self, until: float) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while time.perf_counter() < until:
            writer.write(next(self._requests))
            body = await read_body(reader)
            if RIGHT in body:
                self.right += 1
            else:
                self.wrong += 1
        writer.close()


async def main(url: str, connections: int, seconds: float, tokens: Sequence[str]) -> None:
    """Run the load, and print what came of it."""
    load = Load(url, tokens)
    started = time.perf_counter()
    await load.run(connections, seconds)
    elapsed = time.perf_counter() - started
    sys.stdout.write(json.dumps({"right": load.right, "wrong": load.wrong, "seconds": elapsed}) + "\n")


if __name__ == "__main__":
    listed = Path(sys.argv[4]).read_text().split() if sys.argv[4:] else ()
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), listed))
