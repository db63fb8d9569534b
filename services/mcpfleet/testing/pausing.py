"""Processes that stand still: SIGSTOP, and the wait until it holds."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_WITHIN: Final = 1.0
"""Seconds in which a process stands still, or waits for a disk."""


def pause(pid: int) -> None:
    """Have a process stand still, if it still runs; it does when this returns, where the system says so (Linux).

    The signal only begins it: a thread that runs on another core may still answer something meanwhile.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + _WITHIN
    while not _stands_still(pid) and time.monotonic() < until:
        time.sleep(0.001)


def _stands_still(pid: int) -> bool:
    for each in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            state = each.read_text().rpartition(")")[2].split()[0]
        except OSError:  # the thread has ended
            continue
        if state != "T":
            return False
    return True
