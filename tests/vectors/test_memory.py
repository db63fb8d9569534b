"""A refused request leaves nothing behind (invariant 11)."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest

from mcpfleet.testing.fleet import Fleet
from tests.vectors.http1 import TIMEOUT, Reader, content, written

REQUESTS = 5_000
GROWTH = 5 * 512 * 1024
"""Bytes that an allocator may still take after it has seen every kind of request a few times."""


def refused() -> list[bytes]:
    """The vectors that end with an error, but for those that are large or slow."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.json")):
        group = json.loads(path.read_text())
        for vector in group["vectors"]:
            request, status = vector["request"], vector["expect"]["status"]
            is_quick = status not in (408, 413, 431) and "framing" not in request and request.get("method") != "HEAD"
            is_told = status != 404 or not vector["expect"].get("ends")  # where the end is another request's answer
            if status >= 400 and is_quick and is_told and group["server"] == "plain":
                found.append(content(request["bytes"]) if "bytes" in request else written(request))
    return found


class Caller:
    """Sends request after request, on one connection for as long as the server keeps it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def call(self, request: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, TIMEOUT)
        self._socket.sendall(request)
        answer = Reader(self._socket).answer()
        assert answer.status >= 400
        if "close" in answer.all("connection"):
            self.close()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None


@pytest.mark.rule("invariant 11")
def test_five_thousand_refused_requests_leave_memory_and_connections_where_they_were(
    start: Callable[[str], Fleet], address: Callable[[str], tuple[str, int]]
) -> None:
    process = psutil.Process(start("plain").edges[0].pid)
    caller = Caller(address("plain"))
    requests: Iterator[bytes] = cycle(refused())

    def resident(count: int) -> int:
        for request in islice(requests, count):
            caller.call(request)
        return int(process.memory_info().rss)

    before = resident(REQUESTS // 2)  # caches of values, and the allocator's arenas, are full by then
    descriptors = process.num_fds()
    after = resident(REQUESTS)
    caller.close()
    assert after - before < GROWTH
    assert process.num_fds() <= descriptors + 1
