"""A worker of `mcpfleet dev`: it leaves a report of what it imports (`python -m mcpfleet.cli.dev_worker TARGET FILE`).

`dev` shows the mistake of an import that fails, so this prints none.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from mcpfleet.cli.inspection import inspect
from mcpfleet.cli.services import SETTINGS
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.run import Process, Service, run
from mcpfleet.worker.__main__ import serve_app
from mcpfleet.worker.settings import WorkerSettings


async def serve(process: Process[WorkerSettings], target: str, file: Path) -> None:
    """Import the application, leave the report, and run the worker."""
    report, app = inspect(target)
    made = file.with_suffix(".new")
    made.write_text(report.model_dump_json())
    made.replace(file)
    if app is None:
        raise ConfigurationError  # the report has the mistake
    await serve_app(process, app)


def main() -> int:
    """Run the worker; returns its exit code."""
    target, file = sys.argv[1], Path(sys.argv[2])
    sys.argv[1:] = []  # the application's own reading of arguments finds none
    os.environ["MCPFLEET_TARGET"] = target
    service = Service("worker", partial(serve, target=target, file=file), WorkerSettings)
    return run(service, known=SETTINGS.values())


if __name__ == "__main__":
    sys.exit(main())
