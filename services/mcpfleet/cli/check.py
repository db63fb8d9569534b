"""`mcpfleet check`: imports an application, and shows what it declares, without starting anything."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any, Final

import typer

from mcpfleet.cli.import_report import Declared, DeclaredKind, Finding, ImportReport
from mcpfleet.cli.signatures import printable, prompt_signature, tool_signature
from mcpfleet.process.names import MISCONFIGURED, MODULE

_STARTS_WITHIN: Final = 60.0
"""Seconds until a process that does nothing else has started, on a machine that has much else to do."""
_GRACE: Final = 3.0
"""Seconds beyond its limit that an import may take to notice it; code outside of Python never does."""
_CHUNK: Final = 64 * 1024
SHOWN_KINDS: Final[dict[DeclaredKind, str]] = {
    "tool": "tools", "prompt": "prompts", "resource": "resources", "template": "templates",
    "method": "methods",
}  # fmt: skip
"""The kinds that are shown, and the words for several of them."""


def run_check(target: str, *, as_json: bool, within: float) -> int:
    """Check an application and print the result; returns the exit code: 2 if it cannot be loaded."""
    report = inspected(target, within)
    report = report.model_copy(update={"warnings": (*report.warnings, *unenforced(report))})
    if as_json:
        print(json.dumps(_document(report), ensure_ascii=False))  # noqa: T201
    else:
        for line in lines(report):
            typer.echo(line)
        for warning in report.warnings:
            typer.secho(f"warning: {warning.message}", fg="yellow", err=True)
        if report.mistake is not None:
            typer.secho(report.mistake.text, fg="red", err=True)
    return MISCONFIGURED if report.mistake is not None else 0


def inspected(target: str, within: float) -> ImportReport:
    """Import an application in a process of its own; whatever it prints appears on our standard error.

    Args:
        target: the application.
        within: seconds that the import may take.
    """
    process = subprocess.Popen(  # noqa: S603  # this interpreter
        [*MODULE, "mcpfleet.cli.inspection", target, str(within)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = _read(process.stdout.fileno(), within + _GRACE)
        if said:
            return ImportReport.model_validate_json(said)
        if said is None:
            return _failed(target, f"{target}: the import is not finished after {within:g} s, outside of Python's code")
        code = process.wait()
        return _failed(target, f"{target}: the import ends its process with code {code}")
    finally:
        process.stdout.close()
        with suppress(ProcessLookupError):  # and what it has started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _read(reader: int, within: float) -> bytes | None:
    """Read to the end; None if that takes too long, from the first byte on."""
    until, parts = time.monotonic() + _STARTS_WITHIN, [b""]
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(reader, _CHUNK)
        if not part:
            return b"".join(parts).strip()
        if len(parts) == 1:  # the import begins
            until = time.monotonic() + within
        parts.append(part)
    return None


def _failed(target: str, message: str) -> ImportReport:
    return ImportReport(target=target, mistake=Finding(message=message))


def unenforced(report: ImportReport) -> list[Finding]:
    """Warn of scopes that nothing enforces, since no caller is identified.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    scoped = [each for each in report.declared if each.scopes]
    if not scoped:
        return []
    from mcpfleet.contracts.access import AccessSettings  # noqa: PLC0415  # it costs start-up time

    if AccessSettings.load().authorization != "none":
        return []
    names = ", ".join(each.name for each in scoped)
    message = f"{scoped[0].place}: scopes are not enforced, since MCPFLEET_AUTHORIZATION is none: {names}"
    return [Finding(message=message, file=scoped[0].file, line=scoped[0].line)]


def lines(report: ImportReport) -> list[str]:
    """The lines to show: the application, and each kind that it declares, with signatures and descriptions."""
    if report.mistake is not None:
        return []
    shown = [printable(f"{report.name} {report.version} ({report.target})")]
    for kind, several in SHOWN_KINDS.items():
        entries = [(signature(each), _about(each)) for each in report.of(kind)]
        if entries:
            shown.append(f"{several}:")
            for head, about in entries:
                shown.append(f"  {head}")
                shown += [f"      {about}"] if about else []
    if report.of("lister"):
        shown.append("and resources that functions list")
    return shown if report.declared else [*shown, "it declares nothing"]


def signature(declared: Declared) -> str:
    """Show how a declaration is used: a signature, or a URI."""
    match declared.kind:
        case "tool":
            return tool_signature(declared.name, declared.wire.get("inputSchema"))
        case "method":
            return tool_signature(declared.name, declared.wire.get("params"))
        case "prompt":
            return prompt_signature(declared.name, declared.wire.get("arguments"))
        case _:
            return printable(declared.name)


def _about(declared: Declared) -> str:
    """The first line of a declaration's description."""
    return printable((str(declared.wire.get("description") or "").splitlines() or [""])[0])


def _document(report: ImportReport) -> dict[str, Any]:
    document: dict[str, Any] = {
        "target": report.target, "ok": report.mistake is None, "name": report.name, "version": report.version,
    }  # fmt: skip
    for kind, several in SHOWN_KINDS.items():
        document[several] = [
            {"signature": signature(each), "file": each.file, "line": each.line, **each.wire}
            for each in report.of(kind)
        ]
    document["warnings"] = [each.model_dump(exclude={"traceback"}) for each in report.warnings]
    document["mistake"] = None if report.mistake is None else report.mistake.model_dump()
    return document
