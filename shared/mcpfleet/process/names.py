"""Names that commands need before they import anything heavy: variables, exit codes, the start of a command of ours."""

from __future__ import annotations

import sys
from typing import Final

PREFIX: Final = "MCPFLEET_"
"""The prefix of every variable of ours."""
TOKEN_VARIABLE: Final = f"{PREFIX}TOKEN"
"""No setting: the commands for people read a caller's token from it."""

DRAINED: Final = 0
"""The exit code of a process that ended by itself, or drained."""
FAILED: Final = 1
"""The exit code of a process that failed, and of a command without a good result."""
INCOMPLETE: Final = 3
"""The exit code of a process that left something behind when it was told to stop; its line `shutdown` says what."""
MISCONFIGURED: Final = 2
"""The exit code of a process whose settings are wrong, and of a command that was given something wrong."""

MODULE: Final = [sys.executable, "-P", "-m"]
"""Begins a command that runs a module of ours: a file of the folder that it runs in replaces none of its imports."""
