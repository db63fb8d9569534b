"""A process that tells what it was started with, as `python -m tests.fleet.told_by_fork`, and ends with code 3."""

# ruff: noqa: T201

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import mcpfleet.edge

if __name__ == "__main__":
    told = {
        "argv": sys.argv[1:],
        "variables": {name: value for name, value in os.environ.items() if name.startswith("MCPFLEET_")},
        "directory": str(Path.cwd()),
        "path": sys.path[0],
        "descriptors": sorted(int(each.name) for each in Path("/proc/self/fd").iterdir())[:-1],
        "leads": os.getsid(0) == os.getpid(),
        "preloaded": hasattr(mcpfleet.edge, "server"),
    }
    print(json.dumps(told))
    print("ready", flush=True)
    print("an error", file=sys.stderr)
    if sys.argv[1] == "wait":
        signal.pause()
    sys.exit(3)
