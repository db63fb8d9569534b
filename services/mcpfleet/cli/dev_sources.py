"""A worker of `mcpfleet dev` for MCP servers that exist: it reports their configuration, then what they offer."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mcpfleet.cli.import_report import REPORT, Declared, Finding, ImportReport, write
from mcpfleet.contracts.endpoints import EVERY_POOL
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.tracebacks import shown_path
from mcpfleet.sources.reading import Configuration
from mcpfleet.sources.source import Command, Object, Source, Url
from mcpfleet.sources.target import SourceTarget
from mcpfleet.worker.hosting.source_app import SourceApp

if TYPE_CHECKING:
    from mcpfleet.process.run import Process
    from mcpfleet.worker.hosting.served_sources import ServedSources
    from mcpfleet.worker.settings import WorkerSettings


def described(target: SourceTarget) -> tuple[ImportReport, SourceApp | None]:
    """Read the configuration; nothing is started yet.

    Returns:
        The report, and the sources if the configuration is right.
    """
    began = time.time()
    try:
        found = target.read(os.environ)
        app = SourceApp(target.name(found.sources), tuple(map(on_one_machine, found.sources)))
        endpoints = _in_one_pool(found)
    except ConfigurationError as error:
        mistake = Finding(message="\n".join(error.problems))
        return ImportReport(target=target.text, mistake=mistake, began=began, files=_files(target)), None
    return ImportReport(
        target=target.text,
        name=app.name,
        version="-",
        warnings=tuple(Finding(message=str(note)) for note in found.notes),
        began=began,
        files=(*map(str, found.files), *_modules(app.sources)),
        runs=tuple(map(command_of, app.sources)),
        endpoints=endpoints,
    ), app


def _in_one_pool(found: Configuration) -> str | None:
    """Return MCPFLEET_ENDPOINTS for one pool of all sources.

    Raises:
        ConfigurationError: an endpoint has some of the sources alone.
    """
    for name, endpoint in found.endpoints.items():
        if EVERY_POOL not in endpoint.pools:
            raise ConfigurationError(
                f"endpoints.{name}.sources: dev serves all sources by one worker, so no endpoint can have some of them "
                'alone: write ["*"]'
            )
    if not found.endpoints:
        return None
    members = {name: each.model_dump(mode="json", exclude_defaults=True) for name, each in found.endpoints.items()}
    return json.dumps(members)


def on_one_machine(source: Source) -> Source:
    """Return a source as `dev` serves it: everybody on this machine shares its process, unless it says otherwise."""
    return source if source.isolation is not None else source.model_copy(update={"isolation": "shared"})


def command_of(source: Source) -> str:
    """Return what a source runs or reaches, as the configuration has it: without values of variables."""
    way = source.way
    if isinstance(way, Object):
        return f"{source.name}: {way.python or 'python'} {shown_path(way.target)}"
    if isinstance(way, Command):
        import shlex  # noqa: PLC0415  # few need it

        return f"{source.name}: {shlex.join(way.words) if not way.shown else ' '.join(way.shown)}"
    if isinstance(way, Url):
        return f"{source.name}: {way.without_secrets}"
    return f"{source.name}: {getattr(way, 'shown', '') or getattr(way, 'url', '') or getattr(way, 'target', '')}"


def serve(report: ImportReport, app: SourceApp) -> int:
    """Run a worker that serves the sources; returns its exit code."""
    from mcpfleet.cli.services import SETTINGS  # noqa: PLC0415
    from mcpfleet.process.run import Service, run  # noqa: PLC0415
    from mcpfleet.worker.settings import WorkerSettings  # noqa: PLC0415

    file = os.environ.pop(REPORT, None)
    os.environ["MCPFLEET_TARGET"] = report.target

    async def work(process: Process[WorkerSettings]) -> None:
        from mcpfleet.bus.service import bus_of  # noqa: PLC0415
        from mcpfleet.contracts.permissions import pool_user  # noqa: PLC0415
        from mcpfleet.process.logs import say_ready  # noqa: PLC0415
        from mcpfleet.worker.__main__ import serve_over  # noqa: PLC0415

        pool = process.settings.pool or app.name
        bus = bus_of(process, pool_user(pool))
        served = app.served_by(process, bus, pool)

        def ready() -> None:
            if file is not None:
                write(listed(report, served), Path(file))
            say_ready(process.log)

        await serve_over(process, bus, served, pool, ready, tells_silent_tools=False)

    return run(Service("worker", work, WorkerSettings), known=SETTINGS.values())


def listed(report: ImportReport, served: ServedSources) -> ImportReport:
    """Return the report with what the sources offer; the log tells what cannot be served."""
    declared = tuple(
        Declared(
            kind=each.definition.kind, name=each.definition.name, wire=each.definition.wire,
            scopes=each.definition.scopes, asks=bool(each.definition.may_be_asked), task=each.definition.task,
        )
        for each in served.handlers
    )  # fmt: skip
    return report.model_copy(update={"declared": declared})


def _modules(sources: tuple[Source, ...]) -> Iterator[str]:
    """Yield the Python files of server objects: a change of one starts it anew."""
    for source in sources:
        if isinstance(source.way, Object):
            file = source.way.target.rpartition(":")[0] or source.way.target
            if file.endswith(".py"):
                yield str(Path(file).resolve())


def _files(target: SourceTarget) -> tuple[str, ...]:
    return tuple(str(Path(each).resolve()) for each in target.files)
