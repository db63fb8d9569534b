"""Runs a fleet of the tree whose Python runs this file: what `beside.py` measures. It imports nothing of its own tree.

    PYTHON -P launch.py APPLICATION SETTINGS

SETTINGS is a JSON object of variables for each process. It prints one line of JSON: the first edge's URL and process
id, and the file of the edge's package. The fleet runs until the input ends.
"""

from __future__ import annotations

import json
import sys

import anyio

import mcpfleet.edge
from mcpfleet.testing.fleet import Fleet


async def main(application: str, settings: str) -> None:
    """Run the fleet."""
    # A variable of the interpreter: each process starts its own, as a user's does, and is no fork.
    async with Fleet(application, environment={"PYTHONHASHSEED": "0", **json.loads(settings)}) as fleet:
        said = {"url": fleet.urls[0], "edge": fleet.edges[0].pid, "code": mcpfleet.edge.__file__}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
