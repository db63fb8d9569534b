"""The pool of an application's workers, before any of them runs: NATS needs a user for it first.

`python -m mcpfleet.cli.app_pool TARGET` prints it. The author's code runs there, so it is a process of its own, whose
other output is dropped: a worker shows it.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from mcpfleet.cli.child import Launch
from mcpfleet.contracts.manifest import POOL_PATTERN, pool_named
from mcpfleet.process.errors import ConfigurationError

SETTING: Final = "MCPFLEET_POOL"
_WITHIN: Final = 20.0
"""Seconds that the import may take; a worker that takes longer is reported by the fleet."""
_LONGEST: Final = 1024


async def pool_of(target: str, launch: Launch, environment: Mapping[str, str]) -> str:
    """Return the pool of an application: that of `MCPFLEET_POOL`, else the one named after its App.

    An application that cannot be imported has the pool of its file's name: its workers end, and say why.

    Args:
        target: the application.
        launch: starts the process that imports it.
        environment: the variables of a worker.

    Raises:
        ConfigurationError: MCPFLEET_POOL is no name of a pool.
    """
    if chosen := environment.get(SETTING, ""):
        if not re.fullmatch(POOL_PATTERN, chosen):
            raise ConfigurationError(f"{SETTING}: {chosen!r} is not a pool's name: it must match {POOL_PATTERN}")
        return chosen
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        process = await launch([sys.executable, "-m", __spec__.name, target], environment, nowhere)
    finally:
        os.close(nowhere)
    said = b""
    try:
        with anyio.move_on_after(_WITHIN):
            assert process.stdout is not None
            said = (await process.stdout.read(_LONGEST)).strip()
            await process.wait()
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.wait()
    found = said.decode(errors="replace")
    return found if re.fullmatch(POOL_PATTERN, found) else pool_named(_file_name(target))


def _file_name(target: str) -> str:
    path = target.partition(":")[0]
    return Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]


def main() -> None:
    """Import the target and print its pool; end without waiting for anything that the application has started."""
    from mcpfleet.app import load  # noqa: PLC0415  # who asks imports no application

    target = sys.argv[1]
    sys.argv[1:] = []  # the application's own reading of arguments finds none
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        os.write(answer, pool_named(load(target).name).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
