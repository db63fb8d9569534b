"""The servers that vectors are for: fleets of real processes, each started once, on a thread of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import start_blocking_portal

from mcpfleet.testing.fleet import Fleet
from tests.vectors import http1
from tests.vectors.groups.authorization import GOOD, SETTINGS
from tests.vectors.groups.host_origin_cors import PAGE
from tests.vectors.groups.limits import BODY, LARGE, VALUES
from tests.vectors.making import Ask, request, vector

APP = Path(__file__).with_name("app.py")
ENDPOINTS: dict[str, dict[str, Any]] = {
    "mcp": {"path": "/mcp", "revisions": ["2026-07-28"]},
    "lenient": {"path": "/lenient", "revisions": ["2026-07-28"], "body_version_wins": True},
    "legacy": {"path": "/legacy"},
    "bare": {"path": "/bare", "revisions": ["2026-07-28"], "pools": ["vectors"], "names": {"vectors": ["nothing"]}},
}
PLAIN = {
    "MCPFLEET_ENDPOINTS": json.dumps(ENDPOINTS),
    "MCPFLEET_MAX_REQUEST": str(BODY),
    "MCPFLEET_LARGE_BODY": str(LARGE),
    "MCPFLEET_MAX_VALUES": str(VALUES),
    "MCPFLEET_READ_TIMEOUT": "1",
    "MCPFLEET_CORS_ORIGINS": PAGE,
    "MCPFLEET_AUDIT": "false",
}
SERVERS = {"plain": PLAIN, "strict": PLAIN | {"MCPFLEET_STRICT_HEADERS": "true"}, "guarded": PLAIN | SETTINGS}


DISCOVER = vector("discovery", "M32", Ask(request("server/discover"), {"Authorization": f"Bearer {GOOD}"}), 200)[
    "request"
]


def await_catalogs(fleet: Fleet) -> None:
    """Wait until every endpoint knows what it offers: an edge is ready as soon as one does."""
    deadline = time.monotonic() + 10
    waiting = {each["path"] for each in ENDPOINTS.values()}
    while waiting:
        assert time.monotonic() < deadline, waiting
        for path in sorted(waiting):
            try:
                http1.exchange(listening(fleet), DISCOVER | {"path": path})
                waiting.discard(path)
            except EOFError:  # it cannot be answered truly yet
                time.sleep(0.02)


def listening(fleet: Fleet) -> tuple[str, int]:
    """Where the fleet's edge listens."""
    parts = urlsplit(fleet.urls[0])
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[[str], Fleet]]:
    """Starts the server of a name, or finds it running."""
    running: dict[str, Fleet | None] = {}
    with ExitStack() as stack:

        def started(name: str) -> Fleet:
            if name not in running:
                running[name] = None
                portal = stack.enter_context(start_blocking_portal())
                fleet = Fleet(APP, environment=SERVERS[name])
                running[name] = stack.enter_context(portal.wrap_async_context_manager(fleet))
                await_catalogs(fleet)
            found = running[name]
            assert found is not None, "it did not start: the first test that wanted it says why"
            return found

        yield started


@pytest.fixture(scope="session")
def address(start: Callable[[str], Fleet]) -> Callable[[str], tuple[str, int]]:
    """Says where the edge of a server listens."""

    def of(name: str) -> tuple[str, int]:
        return listening(start(name))

    return of
