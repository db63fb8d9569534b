"""Which secrets of `dev`'s own environment reach which process."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcpfleet.cli.fleet import FleetProcesses, Plan


async def test_a_worker_never_gets_what_services_alone_need(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Invariant 13: a worker is the least trusted of the processes."""
    secrets = {"MCPFLEET_TOKENS_FILE": "tokens.toml", "MCPFLEET_INTROSPECTION_SECRET": "hunter2"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    plan = Plan("app.py", services=2, nats_url="nats://127.0.0.1:1", environment={"MCPFLEET_POOL": "shop"})
    fleet = FleetProcesses(plan, tmp_path)
    await fleet.start_nats()
    assert [child.name for child in fleet.service_processes] == ["services", "services 2"]
    for child in fleet.service_processes:
        assert secrets.items() <= child.environment.items()
    for child in (*fleet.workers, *fleet.edges):
        assert not secrets.keys() & child.environment.keys()
