"""The collector's and Jaeger's own configurations, run by a real Jaeger, which is a Collector of OpenTelemetry itself.

Where no `jaeger` is on the path, what is here is left out, and test_observability.py holds the configurations alone.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import yaml
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from mcpfleet.cli.child import Child
from tests.deploy.manifests import K8S, ROOT
from tests.kit.ports import free_port

JAEGER = shutil.which("jaeger")
__test__ = JAEGER is not None
MILLISECOND = 1_000_000
SENT = {"plain": 300, "failed": 5, "slow": 5}


@asynccontextmanager
async def jaeger(name: str, configuration: Mapping[str, Any], folder: Path, health: str) -> AsyncIterator[None]:
    """Run one with a configuration, for the length of a block; it is healthy when the block begins."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(dict(configuration)))
    child = Child(name, [str(JAEGER), "--config", str(file)], os.environ, log=folder / f"{name}.log")
    await child.start()
    try:
        async with httpx2.AsyncClient() as http:
            with anyio.fail_after(30):
                while not await _is_healthy(http, health):
                    assert child.is_running, (folder / f"{name}.log").read_text()
                    await anyio.sleep(0.1)
        yield
    finally:
        with anyio.CancelScope(shield=True):
            await child.kill()


async def _is_healthy(http: httpx2.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(url)).status_code == 200
    except httpx2.TransportError:
        return False


def moved(text: str, ports: Mapping[int, int]) -> Any:
    """A configuration with its ports on this machine alone."""
    for port, own in ports.items():
        text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{own}").replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
    return yaml.safe_load(text)


def collector(ports: Mapping[int, int]) -> Any:
    """The collector's configuration: traces alone, judged after three seconds."""
    configuration = moved((ROOT / "observability" / "collector.yaml").read_text(), ports)
    configuration["processors"]["tail_sampling"]["decision_wait"] = "3s"
    configuration["service"]["telemetry"]["metrics"] = {"level": "none"}
    # Jaeger has the newer of the two extensions that tell a collector's health.
    health = configuration["extensions"].pop("health_check")
    configuration["extensions"]["healthcheckv2"] = {"use_v2": True, "http": health}
    configuration["service"]["extensions"] = ["healthcheckv2"]
    return configuration


def send(endpoint: str) -> None:
    """Traces of one span: many that nobody asks for, some that failed, and some that were slow."""
    provider = TracerProvider(resource=Resource.create({"service.name": "edge"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    now = time.time_ns()
    for name, count in SENT.items():
        for _ in range(count):
            span = provider.get_tracer("test").start_span(name, start_time=now)
            if name == "failed":
                span.set_status(trace.StatusCode.ERROR)
            span.end(now + (2000 if name == "slow" else 10) * MILLISECOND)
    provider.shutdown()


async def test_jaeger_gets_what_failed_what_was_slow_and_a_tenth_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both configurations are accepted as they are, but for the machine's ports."""
    storing = {port: free_port() for port in (4317, 16686, 16685, 13133)}
    taking = {port: free_port() for port in (4317, 4318, 8889, 13133)}
    monkeypatch.setenv("TRACES_ENDPOINT", f"http://127.0.0.1:{storing[4317]}")
    stored = moved((K8S / "components" / "jaeger" / "jaeger.yaml").read_text(), storing)
    async with (
        jaeger("jaeger", stored, tmp_path, f"http://127.0.0.1:{storing[13133]}/status"),
        jaeger("collector", collector(taking), tmp_path, f"http://127.0.0.1:{taking[13133]}/status"),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{storing[16686]}") as http,
    ):
        await anyio.to_thread.run_sync(send, f"http://127.0.0.1:{taking[4318]}")
        kept: dict[str, int] = {}
        with anyio.fail_after(30):
            while kept.get("slow") != SENT["slow"] or kept.get("failed") != SENT["failed"]:
                await anyio.sleep(0.5)
                for name in SENT:
                    query: dict[str, str | int] = {"service": "edge", "operation": name, "limit": 1000}
                    kept[name] = len((await http.get("/api/traces", params=query)).json().get("data") or [])
        assert 0 < kept["plain"] < SENT["plain"] / 2
