"""The lines of `mcpfleet dev` in the terminal: how to use the fleet once it is ready, and what becomes of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import typer

from mcpfleet.cli.import_report import Declared, ImportReport
from mcpfleet.cli.signatures import example_arguments, printable
from mcpfleet.process.logs import coloured

_MOST_TOOLS: Final = 8
"""Tools that are named."""
_MOST_LINES: Final = 6
"""Lines until the fleet is ready."""
_MOST_URLS: Final = 2
"""URLs that have a line each; more share one."""
_OTHERS: Final = (("prompt", "prompts"), ("resource", "resources"), ("template", "templates"))


def say(sentence: str, colour: str) -> None:
    """Print a sentence on standard error, apart from the output; coloured where the log is."""
    typer.echo(typer.style(sentence, fg=colour) if coloured(sys.stderr) else sentence, err=True, color=True)


def say_ready(urls: Sequence[str], console: str | None, report: ImportReport | None, *, hints: bool = True) -> None:
    """Say that the fleet serves: where, what, and how to call it.

    Args:
        urls: the edges' URLs, in lines `ready <url>` on standard output, for programs too. More than two share one.
        console: the console's URL.
        report: what a worker has imported.
        hints: say also what it offers, and how to use it; a program needs only the rest.
    """
    heads = list(urls) if len(urls) <= _MOST_URLS else [" ".join(urls)]
    for head in heads:
        typer.echo(f"ready {head}")
    lines = [] if console is None or not hints else [f"console  {console}"]
    if report is not None and hints:
        example = example_call(urls[0], report)
        lines += [f"offers   {offers(report)}", *([] if example is None else [f"try      {example}"])]
    for line in lines:
        say(line, "cyan")
    warnings = [] if report is None else [warning.message for warning in report.warnings]
    room = _MOST_LINES - len(heads) - len(lines)
    if len(warnings) > room:
        rest = len(warnings) - room
        warnings = [*warnings[: room - 1], f"{warnings[room - 1]} (`mcpfleet check` shows {rest} more)"]
    for warning in warnings:
        say(f"warning  {warning}", "yellow")


def offers(report: ImportReport) -> str:
    """Return in one line what an application declares."""
    tools = [printable(each.name) for each in report.of("tool")]
    more = f" and {len(tools) - _MOST_TOOLS} more tools" if len(tools) > _MOST_TOOLS else ""
    parts = [f"{', '.join(tools[:_MOST_TOOLS])}{more}" if tools else "no tool"]
    for kind, several in _OTHERS:
        number = sum(each.kind == kind for each in report.declared)
        parts += [f"{number} {kind if number == 1 else several}"] if number else []
    return "; ".join(parts)


def example_call(url: str, report: ImportReport) -> str | None:
    """Return a command that calls one of the tools; None without a tool.

    It is the first declared of those that only read, or that need no argument; one that asks something comes later.
    """
    tools = sorted(report.of("tool"), key=_preference)
    if not tools:
        return None
    tool = tools[0]
    command = "tasks start" if tool.task == "required" else "call"
    words = ["mcpfleet", command, url, printable(tool.name), *example_arguments(tool.wire.get("inputSchema"))]
    if os.environ.get("MCPFLEET_AUTHORIZATION", "none") != "none":
        words.append("--token TOKEN")
    return " ".join(words)


def _preference(tool: Declared) -> tuple[bool, bool, bool, bool]:
    hints = tool.wire.get("annotations") or {}
    needs = bool((tool.wire.get("inputSchema") or {}).get("required"))
    only_reads = bool(hints.get("readOnlyHint"))
    harms = bool(hints.get("destructiveHint")) and not only_reads
    return tool.task == "required", tool.asks, harms, needs and not only_reads
