"""Ports for programs that must be told theirs."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port of loopback that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port
