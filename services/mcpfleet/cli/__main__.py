"""The command `mcpfleet`. `commands/group.py` has the table of its commands."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.names import MISCONFIGURED

_OBJECTS_OF_IMPORTS: Final = 200_000
"""Objects that are made between two collections: imports make many, and free none. A service sets its own."""


def main(words: Sequence[str] | None = None) -> None:
    """Run the command line; each problem that an operator can solve is one line.

    Args:
        words: the command and its options; None takes those of this process.
    """
    if words is None:  # this process is ours alone
        gc.set_threshold(_OBJECTS_OF_IMPORTS)
    words = sys.argv[1:] if words is None else list(words)
    if words == ["--version"]:  # scripts ask this often, and typer is most of what it would take
        print(f"mcpfleet {version('mcpfleet')}")  # noqa: T201
        return
    from mcpfleet.cli.commands.group import app  # noqa: PLC0415
    from mcpfleet.cli.results import say  # noqa: PLC0415

    try:
        app(args=words, prog_name="mcpfleet")
    except (ConfigurationError, BaseExceptionGroup) as error:
        causes = leaves(error)
        if not all(isinstance(cause, ConfigurationError) for cause in causes):
            raise
        for cause in causes:
            for problem in getattr(cause, "problems", (str(cause),)):
                say(problem, err=True)  # it may quote a server
        sys.exit(MISCONFIGURED)


if __name__ == "__main__":
    main()
