"""Processes from start to exit code: real children, real signals."""

import signal
from typing import Any

import httpx2
import pytest

from tests.kit.otlp import otlp_receiver

SERVICE = """
import sys, threading, time, anyio
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.run import Process, Service, run
from mcpfleet.process.settings import ProcessSettings
from mcpfleet.telemetry.spans import SpanKind
"""

DRAINS = (
    SERVICE
    + """
async def serve(process):
    process.health.set("nats", True)
    await process.stopping.wait()
    process.log.info("draining", left=process.stopping.left())
sys.exit(run(Service("edge", serve, ProcessSettings)))
"""
)

STUBBORN = (
    SERVICE
    + """
async def serve(process):
    process.health.set("nats", True)
    try:
        await anyio.sleep_forever()
    finally:
        process.log.info("cleaned up")
sys.exit(run(Service("edge", serve, ProcessSettings)))
"""
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_drains(child: Any, number: signal.Signals) -> None:
    """The service is told, ends by itself, and the exit code says that all went well."""
    async with child(DRAINS) as process:
        await process.until("ready")
        process.signal(number)
        assert (await process.until("stopping"))["signal"] == number.name
        assert 59 < (await process.until("draining"))["left"] <= 60
        assert await process.ended() == 0
        assert process.texts == []


async def test_a_second_signal_cancels_at_once(child: Any) -> None:
    """Remaining work is cancelled, may clean up, and the exit code tells that it was cut."""
    async with child(STUBBORN) as process:
        await process.until("ready")
        process.signal(signal.SIGTERM)
        await process.until("stopping")
        process.signal(signal.SIGINT)
        line = await process.until("work cancelled")
        assert line["why"] == "a second signal, SIGINT"
        await process.until("cleaned up")
        assert (await process.until("shutdown"))["cause"] == "SIGTERM, then a second signal, SIGINT"
        assert await process.ended() == 3


async def test_the_last_deadline_cancels(child: Any) -> None:
    """The line names the setting, so that who finds calls cut knows which to raise."""
    async with child(STUBBORN, MCPFLEET_DRAIN="0.1", MCPFLEET_LAST_DEADLINE="0.2") as process:
        await process.until("ready")
        process.signal(signal.SIGTERM)
        line = await process.until("work cancelled")
        assert "MCPFLEET_LAST_DEADLINE" in line["why"]
        assert await process.ended() == 3


async def test_what_shields_itself_is_ended_by_force(child: Any) -> None:
    """A second signal means now: neither a shield nor a thread that does not return holds the process up."""
    script = (
        SERVICE
        + """
import mcpfleet.process.run as module
module.FORCED_AFTER = 0.2
async def serve(process):
    process.health.set("nats", True)
    with anyio.CancelScope(shield=True):
        await anyio.to_thread.run_sync(time.sleep, 60)
sys.exit(run(Service("edge", serve, ProcessSettings)))
"""
    )
    async with child(script) as process:
        await process.until("ready")
        process.signal(signal.SIGTERM)
        await process.until("stopping")
        process.signal(signal.SIGTERM)
        await process.until("process killed")
        assert await process.ended() == 3


async def test_a_service_that_ends_by_itself_ends_the_process(child: Any) -> None:
    """The others in the process are told to stop, as by a signal."""
    script = (
        SERVICE
        + """
async def short(process):
    pass
async def long(process):
    await process.stopping.wait()
sys.exit(run(Service("short", short, ProcessSettings), Service("long", long, ProcessSettings)))
"""
    )
    async with child(script) as process:
        assert await process.ended() == 0
        assert [line["service"] for line in process.lines if line["event"] == "ended"] == ["short", "long"]


async def test_an_error_is_told_with_its_causes_and_ends_all(child: Any) -> None:
    """Each error of a group is one line, under the service that raised it."""
    script = (
        SERVICE
        + """
async def store(process):
    try:
        raise OSError("connection refused")
    except OSError as error:
        raise RuntimeError("the store does not answer (MCPFLEET_STORE_URL)") from error
async def broken(process):
    async with anyio.create_task_group() as group:
        group.start_soon(store, process)
async def other(process):
    try:
        await anyio.sleep_forever()
    finally:
        process.log.info("cancelled too")
sys.exit(run(Service("other", other, ProcessSettings), Service("catalog", broken, ProcessSettings)))
"""
    )
    async with child(script) as process:
        assert await process.ended() == 1
        [line] = [line for line in process.lines if line["event"] == "service failed"]
        assert line["service"] == "catalog"
        assert line["error"] == "RuntimeError: the store does not answer (MCPFLEET_STORE_URL)"
        assert line["because"] == ["OSError: connection refused"]
        assert "Traceback" in line["exception"]
        assert any(line["event"] == "cancelled too" for line in process.lines)
        assert process.texts == []


async def test_a_wrong_setting_is_one_line_and_exit_code_two(child: Any) -> None:
    """All that is wrong at once, named by its variable, before anything runs."""
    async with child(DRAINS, MCPFLEET_DRAIN="soon", MCPFLEET_NATS_USR="x") as process:
        assert await process.ended() == 2
        assert process.lines == []
        assert [line.split(":")[0] for line in process.texts] == ["MCPFLEET_DRAIN", "MCPFLEET_NATS_USR"]
        assert process.texts[1].endswith("did you mean MCPFLEET_NATS_USER?")


async def test_names_of_other_services_may_be_said_to_be_known(child: Any) -> None:
    """One environment may serve a whole fleet."""
    script = (
        SERVICE
        + """
from mcpfleet.process.settings import Settings
class Other(Settings):
    store_url: str = ""
async def serve(process):
    pass
sys.exit(run(Service("edge", serve, ProcessSettings), known=[Other]))
"""
    )
    async with child(script, MCPFLEET_STORE_URL="x") as process:
        assert await process.ended() == 0


async def test_a_service_may_find_its_configuration_wrong_later(child: Any) -> None:
    """Also from inside of its task groups; the line is printed once and no traceback with it."""
    script = (
        SERVICE
        + """
async def refuse():
    raise ConfigurationError("MCPFLEET_NATS_URL: is open to everybody (MCPFLEET_ALLOW_OPEN_NATS)")
async def serve(process):
    async with anyio.create_task_group() as group:
        group.start_soon(refuse)
sys.exit(run(Service("edge", serve, ProcessSettings), Service("catalog", serve, ProcessSettings)))
"""
    )
    async with child(script) as process:
        assert await process.ended() == 2
        assert process.texts == ["MCPFLEET_NATS_URL: is open to everybody (MCPFLEET_ALLOW_OPEN_NATS)"]


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"MCPFLEET_ADMIN_BIND": "203.0.113.1:0"}, "MCPFLEET_ADMIN_BIND: cannot listen on 203.0.113.1:0: "),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector"}, "OTEL_EXPORTER_OTLP_ENDPOINT: "),
    ],
)
async def test_what_cannot_be_had_is_exit_code_two(child: Any, environ: dict[str, str], line: str) -> None:
    """An address of another machine, a collector without a scheme."""
    async with child(DRAINS, **environ) as process:
        assert await process.ended() == 2
        assert len(process.texts) == 1
        assert process.texts[0].startswith(line)


async def test_the_admin_port_answers_from_start_to_drain(child: Any) -> None:
    """Its address is logged; during the drain the process lives and is not ready."""
    script = (
        SERVICE
        + """
async def serve(process):
    process.health.set("nats", True)
    await process.stopping.wait()
    process.log.info("draining")
    await anyio.sleep_forever()
sys.exit(run(Service("edge", serve, ProcessSettings)))
"""
    )
    async with child(script) as process:
        url = (await process.until("admin port opened"))["url"]
        await process.until("ready")
        async with httpx2.AsyncClient(base_url=url) as client:
            assert (await client.get("/readyz")).status_code == 200
            process.signal(signal.SIGTERM)
            await process.until("draining")
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/livez")).status_code == 200
        process.signal(signal.SIGTERM)
        assert await process.ended() == 3


async def test_the_last_spans_leave_before_the_process_ends(child: Any) -> None:
    """Two services in one process, each under its own name."""
    script = (
        SERVICE
        + """
async def serve(process):
    with process.telemetry.tracer.start("work", SpanKind.INTERNAL, None):
        process.log.info("working")
sys.exit(run(Service("tasks", serve, ProcessSettings), Service("catalog", serve, ProcessSettings)))
"""
    )
    async with otlp_receiver() as collector, child(script, OTEL_EXPORTER_OTLP_ENDPOINT=collector.endpoint) as process:
        assert await process.ended() == 0
        spans = await collector.wait_for(lambda spans: len(spans) == 2)
    assert {span.service for span in spans} == {"tasks", "catalog"}
    logged = {line["service"]: line for line in process.lines if line["event"] == "working"}
    assert {span.service: span.trace_id for span in spans} == {name: line["trace_id"] for name, line in logged.items()}
    assert {span.service: span.instance for span in spans} == {name: line["process"] for name, line in logged.items()}


async def test_the_loop_is_uvloop_where_it_exists(child: Any) -> None:
    """It does not exist on every platform."""
    pytest.importorskip("uvloop")
    script = (
        SERVICE
        + """
import asyncio
async def serve(process):
    process.log.info("loop", module=type(asyncio.get_running_loop()).__module__)
sys.exit(run(Service("edge", serve, ProcessSettings)))
"""
    )
    async with child(script) as process:
        assert (await process.until("loop"))["module"].startswith("uvloop")


async def test_a_process_starts_quickly(child: Any) -> None:
    """Imports are most of a start, so they are counted: a busy machine changes no number of modules."""
    script = """
import json, sys
import mcpfleet.process.run
sys.stderr.write(json.dumps({"event": "imported", "modules": list(sys.modules)}))
"""
    async with child(script) as process:
        modules = (await process.until("imported"))["modules"]
    assert len(modules) < 620, "524 with Python 3.11"
    assert not {"httpx2", "mcp", "nats", "opentelemetry", "sqlalchemy", "starlette"}.intersection(modules)


async def test_two_processes_have_different_ids(child: Any) -> None:
    """16 hexadecimal digits, random."""
    ids = []
    for _ in range(2):
        async with child(DRAINS) as process:
            ids.append((await process.until("ready"))["process"])
    assert len(set(ids)) == 2
    assert all(len(bytes.fromhex(name)) == 8 for name in ids)
