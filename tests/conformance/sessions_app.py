"""The application that asks its callers, for a fleet of processes."""

from __future__ import annotations

from tests.contract.fleet.sessions_app import asking

app = asking()
