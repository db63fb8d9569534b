"""The pool of an application's workers, before any of them runs: NATS needs a user for it first."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio

from mcpfleet.cli.child import Launch, ProcessCommand
from mcpfleet.cli.import_report import ImportReport
from mcpfleet.contracts.manifest import POOL_PATTERN, pool_named
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import MODULE

SETTING: Final = "MCPFLEET_POOL"
_WITHIN: Final = 60.0
"""Seconds that the import may take."""
_GRACE: Final = 10.0
"""Seconds beyond that for the process to start, and to tell; code outside of Python never does."""


async def pool_of(
    target: str, launch: Launch, environment: Mapping[str, str], imported: ImportReport | None = None
) -> str:
    """Return the pool of an application: that of `MCPFLEET_POOL`, else the one named after its App.

    Args:
        target: the application.
        launch: starts the process that imports it, if nobody has.
        environment: the variables of a worker.
        imported: what an import has found.

    Raises:
        ConfigurationError: MCPFLEET_POOL is no name of a pool, or the application cannot be imported.
    """
    if chosen := environment.get(SETTING, ""):
        if not re.fullmatch(POOL_PATTERN, chosen):
            raise ConfigurationError(f"{SETTING}: {chosen!r} is not a pool's name: it must match {POOL_PATTERN}")
        return chosen
    report = imported or await _inspected(target, launch, environment)
    if report.mistake is not None:
        raise ConfigurationError(report.mistake.text)
    return pool_named(report.name)


async def _inspected(target: str, launch: Launch, environment: Mapping[str, str]) -> ImportReport:
    """Import an application in a process of its own, whose other output is dropped: a worker shows it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        words = [*MODULE, "mcpfleet.cli.inspection", target, str(_WITHIN)]
        process = await launch(ProcessCommand(words, environment, nowhere))
    finally:
        os.close(nowhere)
    said, why = b"", f"the import is not finished after {_WITHIN:g} s, outside of Python's code"
    try:
        with anyio.move_on_after(_WITHIN + _GRACE):
            assert process.stdout is not None
            said = (await process.stdout.read(-1)).strip()
            if not said:
                why = f"the import ends its process with code {await process.wait()}"
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.wait()
    if not said:
        raise ConfigurationError(f"{target}: {why}")
    return ImportReport.model_validate_json(said)
