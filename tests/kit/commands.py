"""The command `mcpfleet` as a process, which is there at once: imports are most of a command's time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import anyio

from mcpfleet.cli.child import ProcessCommand
from mcpfleet.testing.fleet import launcher


def cpu(*arguments: str) -> float:
    """The seconds of CPU of a run of this interpreter with these arguments, which nobody forks."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


async def mcpfleet(*words: str, within: float = 60.0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command with these words, and with variables beside those of this process, to its end."""
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", "mcpfleet.cli", *words]
        process = await launcher()(ProcessCommand(command, {**os.environ, **variables}, errors.fileno()))
        assert process.stdout is not None
        with anyio.fail_after(within):
            said = await process.stdout.read()
            code = await process.wait()
        errors.seek(0)
        return subprocess.CompletedProcess(words, code, said.decode(), errors.read().decode())
