"""A worker of `mcpfleet dev`: it leaves a report of what it imported (`python -m mcpfleet.cli.dev_worker TARGET FILE`).

`dev` shows the mistake of an import that fails, so this prints none. The first worker gets the descriptor of a socket
as well: it sends the report, and then waits for its variables. They name a NATS that starts meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mcpfleet.app import App
from mcpfleet.app.ui import allow_localhost
from mcpfleet.cli.first_worker import WITHIN
from mcpfleet.cli.import_report import ImportReport, write
from mcpfleet.cli.inspection import inspect
from mcpfleet.cli.sources import source_target
from mcpfleet.process.names import MISCONFIGURED

if TYPE_CHECKING:  # a first worker reports before it imports these
    from mcpfleet.process.run import Process
    from mcpfleet.worker.settings import WorkerSettings


def work(app: App, target: str) -> int:
    """Run a worker that serves an application; returns its exit code."""
    from mcpfleet.cli.services import SETTINGS  # noqa: PLC0415
    from mcpfleet.process.run import Service, run  # noqa: PLC0415
    from mcpfleet.worker.__main__ import serve_app  # noqa: PLC0415
    from mcpfleet.worker.settings import WorkerSettings  # noqa: PLC0415

    async def serve(process: Process[WorkerSettings]) -> None:
        await serve_app(process, app, tells_silent_tools=False)  # `dev` shows the report's warnings

    os.environ["MCPFLEET_TARGET"] = target
    return run(Service("worker", serve, WorkerSettings), known=SETTINGS.values())


def wait_for_variables(report: ImportReport, descriptor: int) -> bool:
    """Send the report, and take the variables that come back; return whether any came."""
    with socket.socket(fileno=descriptor) as parent:
        parent.sendall(report.model_dump_json().encode())
        parent.shutdown(socket.SHUT_WR)
        if report.mistake is not None:
            return False
        from mcpfleet.worker import __main__  # noqa: F401, PLC0415  # others start meanwhile

        with parent.makefile("rb") as said:
            variables = said.read()
    if variables:
        os.environ.update(json.loads(variables))
    return bool(variables)


async def _inspect(target: str, within: float | None) -> tuple[ImportReport, App | None]:
    return inspect(target, within)


def _read(target: str, within: float | None) -> tuple[ImportReport, Callable[[], int] | None]:
    """Import the application, or read the configuration of sources; returns what then serves it."""
    sources = source_target(target)
    if sources is not None:
        from mcpfleet.cli.dev_sources import described, serve  # noqa: PLC0415

        report, source_app = described(sources)
        return report, None if source_app is None else partial(serve, report, source_app)
    # In a loop, as other workers import it: what such an import may not do, this one may not do either.
    report, app = asyncio.run(_inspect(target, within))
    return report, None if app is None else partial(work, app, target)


def main() -> int:
    """Run the worker; returns its exit code."""
    target, file, *descriptor = sys.argv[1:]
    allow_localhost()
    sys.argv[1:] = []  # the application's own reading of arguments finds none
    if descriptor:
        os.set_inheritable(int(descriptor[0]), False)
    report, serve = _read(target, WITHIN if descriptor else None)
    if descriptor:
        if not wait_for_variables(report, int(descriptor[0])):
            return MISCONFIGURED
    else:
        write(report, Path(file))
    return MISCONFIGURED if serve is None else serve()


if __name__ == "__main__":
    sys.exit(main())
