"""Ports for programs that must be told theirs.

A program binds its port some time after the test has chosen it. Until then nobody else may get it: neither an outgoing
connection, nor another program of this test, nor a test that runs beside it.
"""

from __future__ import annotations

import os
import random
import socket
from pathlib import Path
from typing import Final

_LOWEST: Final = 10_000
_WORKERS: Final = 16
"""Test processes that may run side by side: each chooses among ports of its own."""
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_chosen: set[int] = set()


def highest() -> int:
    """The port below which tests choose: the lowest that the system gives to connections, if that leaves some."""
    lowest_given = int(_EPHEMERAL.read_text().split()[0]) if _EPHEMERAL.exists() else 32_768
    return lowest_given if lowest_given > 2 * _LOWEST else 65_536


def free_port() -> int:
    """A port of loopback that nobody has now, and that this process has not chosen before.

    Raises:
        RuntimeError: all are taken.
    """
    own = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{_WORKERS - 1}").removeprefix("gw")) % _WORKERS
    ports = [port for port in range(_LOWEST + own, highest(), _WORKERS) if port not in _chosen]
    random.shuffle(ports)
    for port in ports:
        if _is_free(port):
            _chosen.add(port)
            return port
    raise RuntimeError("every port is taken")


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False
