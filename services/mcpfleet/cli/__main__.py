"""The command `mcpfleet`. `commands/group.py` has the table of its commands."""

from __future__ import annotations

import sys
from importlib.metadata import version

from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.process.names import MISCONFIGURED


def main() -> None:
    """Run the command line; each problem that an operator can solve is one line."""
    if sys.argv[1:] == ["--version"]:  # scripts ask this often, and typer is most of what it would take
        print(f"mcpfleet {version('mcpfleet')}")  # noqa: T201
        return
    import typer  # noqa: PLC0415

    from mcpfleet.cli.commands.group import app  # noqa: PLC0415

    try:
        app()
    except (ConfigurationError, BaseExceptionGroup) as error:
        causes = leaves(error)
        if not all(isinstance(cause, ConfigurationError) for cause in causes):
            raise
        for cause in causes:
            for problem in getattr(cause, "problems", (str(cause),)):
                typer.echo(problem, err=True)
        sys.exit(MISCONFIGURED)


if __name__ == "__main__":
    main()
