"""A real Jaeger for tests, where `jaeger` is on the path: spans go in by OTLP, and come out as its own API has them.

Its configuration is that of the manifests; what differs is said here. `collector()` is Jaeger where there is one, and
the suite's own receiver where there is none: both answer the same questions.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import httpx2
import yaml

from mcpfleet.cli.child import Child
from tests.kit.otlp import Span, otlp_receiver
from tests.kit.ports import free_port

CONFIGURATION: Final = Path(__file__).parents[2] / "deploy" / "k8s" / "components" / "jaeger" / "jaeger.yaml"
_STARTS_WITHIN: Final = 20.0
_LOOKS: Final = 0.2
_MOST_TRACES: Final = 1000


class Collector(Protocol):
    """Where spans go, and what has arrived there."""

    endpoint: str
    """For OTEL_EXPORTER_OTLP_ENDPOINT."""

    async def wait_for(self, done: Callable[[Sequence[Span]], Any], timeout: float = 30.0) -> list[Span]:
        """Return all spans as soon as they satisfy the condition; TimeoutError names what is there by then."""


def binary() -> str | None:
    """The program, where this machine has it."""
    return shutil.which("jaeger")


@dataclass
class Jaeger:
    """A running Jaeger with its memory as its store."""

    endpoint: str
    ui: str
    """The URL at which its pages and its API begin."""

    async def wait_for(self, done: Callable[[Sequence[Span]], Any], timeout: float = 30.0) -> list[Span]:
        """Return all spans as soon as they satisfy the condition; TimeoutError names what is there by then."""
        last = time.monotonic() + timeout
        async with httpx2.AsyncClient(base_url=self.ui, timeout=5) as http:
            while not done(spans := await _everything(http)):
                if time.monotonic() > last:
                    there = [f"{span.service}: {span.name}" for span in spans]
                    raise TimeoutError(f"after {timeout} s Jaeger has {there}")
                await anyio.sleep(_LOOKS)
        return spans


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    """Run Jaeger, or the suite's own receiver where there is none."""
    if binary() is None:
        async with otlp_receiver() as receiver:
            yield receiver
    else:
        async with jaeger() as running:
            yield running


@asynccontextmanager
async def jaeger(pages: Path | None = None) -> AsyncIterator[Jaeger]:
    """Run Jaeger for the length of a block.

    Args:
        pages: the built pages of its user interface; a program that was built without them has a placeholder.
    """
    program = binary()
    assert program is not None
    otlp, ui = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="jaeger-") as folder:
        path = Path(folder) / "jaeger.yaml"
        path.write_text(yaml.safe_dump(_configuration(otlp, ui, pages)))
        child = Child("jaeger", [program, "--config", str(path)], {}, log=Path(folder) / "log")
        await child.start()
        try:
            await _ready(child, f"http://127.0.0.1:{ui}")
            yield Jaeger(f"http://127.0.0.1:{otlp}", f"http://127.0.0.1:{ui}")
        finally:
            with anyio.CancelScope(shield=True):
                await child.kill()


def _configuration(otlp: int, ui: int, pages: Path | None) -> dict[str, Any]:
    """The manifests' own, on ports of loopback; beside gRPC it takes OTLP over HTTP, which is an exporter's default."""
    found: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    query = found["extensions"]["jaeger_query"]
    query["http"]["endpoint"], query["grpc"]["endpoint"] = f"127.0.0.1:{ui}", "127.0.0.1:0"
    if pages is not None:
        query["ui"] = {"assets_path": str(pages)}
    found["extensions"]["healthcheckv2"]["http"]["endpoint"] = "127.0.0.1:0"
    protocols = {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": f"127.0.0.1:{otlp}"}}
    found["receivers"]["otlp"]["protocols"] = protocols
    return found


async def _ready(child: Child, url: str) -> None:
    async with httpx2.AsyncClient(timeout=2) as http:
        with anyio.fail_after(_STARTS_WITHIN):
            while True:
                assert child.is_running, child.log and child.log.read_text()
                with suppress(httpx2.TransportError):
                    if (await http.get(f"{url}/api/services")).status_code == 200:
                        return
                await anyio.sleep(0.1)


async def _everything(http: httpx2.AsyncClient) -> list[Span]:
    """Every span of every trace."""
    found: dict[str, Span] = {}
    for service in (await http.get("/api/services")).json()["data"] or ():
        answer = await http.get("/api/traces", params={"service": service, "limit": _MOST_TRACES})
        for trace in answer.json()["data"]:
            found |= {span.span_id: span for span in _spans(trace)}
    return list(found.values())


def _spans(trace: Mapping[str, Any]) -> Iterator[Span]:
    for each in trace["spans"]:
        process = trace["processes"][each["processID"]]
        tags = _tags(each["tags"])
        parent, links = _references(each["traceID"], each["references"])
        yield Span(
            name=each["operationName"],
            kind=tags.pop("span.kind", "internal"),
            trace_id=each["traceID"],
            span_id=each["spanID"],
            parent_id=parent,
            service=process["serviceName"],
            instance=_tags(process["tags"]).get("service.instance.id", ""),
            attributes=tags,
            status=str(tags.get("otel.status_code", "unset")).lower(),
            status_message=str(tags.get("otel.status_description", "")),
            links=links,
            start_ns=each["startTime"] * 1000,
            end_ns=(each["startTime"] + each["duration"]) * 1000,
        )


def _tags(pairs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: pair["value"] for pair in pairs}


def _references(trace: str, found: Iterable[Mapping[str, str]]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The parent, and what is linked; Jaeger keeps one reference to a parent that is also linked, as a link."""
    links = tuple((each["traceID"], each["spanID"]) for each in found if each["refType"] == "FOLLOWS_FROM")
    parents = [each["spanID"] for each in found if each["refType"] == "CHILD_OF"]
    parents += [span for of, span in links if of == trace]
    return parents[0] if parents else "", links
