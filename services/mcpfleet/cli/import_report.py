"""The result of an application's import: declarations and warnings, or a mistake. One process tells another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from mcpfleet.contracts.manifest import Kind
from mcpfleet.process.tracebacks import SourceLine

DeclaredKind: TypeAlias = Kind
REPORT: Final = "MCPDEV_REPORT"
"""The variable with the file of a worker's report, which it writes again once it has listed MCP servers."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class Declared(_Value):
    """A declaration of an application."""

    kind: DeclaredKind
    name: str
    """As in the definition: a tool's name, or a resource's URI."""
    wire: dict[str, Any]
    """Its entry in lists."""
    scopes: tuple[str, ...] = ()
    asks: bool = False
    """Whether it may ask its client something."""
    task: Literal["required", "optional"] | None = None
    """Whether a tool's calls are tasks."""
    file: str | None = None
    """The file of its function."""
    line: int | None = None

    @property
    def place(self) -> str:
        """The place of its function, for people; its name if its code has none."""
        return self.name if self.file is None else str(SourceLine(self.file, self.line))


class Finding(_Value):
    """A mistake or a warning, and its place."""

    message: str
    """One line, which begins with the place if there is one."""
    file: str | None = None
    line: int | None = None
    traceback: str = ""
    """The author's own frames; empty where the message says it all."""

    @property
    def text(self) -> str:
        """The message, and the frames below it."""
        return f"{self.message}\n{self.traceback}" if self.traceback else self.message


class ImportReport(_Value):
    """An application's declarations, or why it cannot be imported."""

    target: str
    name: str = ""
    version: str = ""
    declared: tuple[Declared, ...] = ()
    warnings: tuple[Finding, ...] = ()
    mistake: Finding | None = None
    """Why it was not loaded."""
    began: float = 0.0
    """When the import began, in Unix time."""
    files: tuple[str, ...] = ()
    """The author's own files that the import read, also where it failed."""
    runs: tuple[str, ...] = ()
    """The commands of MCP servers that its workers start, without values of variables; empty for an application."""
    endpoints: str | None = None
    """MCPFLEET_ENDPOINTS as a configuration of MCP servers has it; None where it has none."""

    def of(self, kind: DeclaredKind) -> list[Declared]:
        """The declarations of a kind, in their order."""
        return [each for each in self.declared if each.kind == kind]


def write(report: ImportReport, file: Path) -> None:
    """Write a report to a file; nobody reads half of one."""
    made = file.with_suffix(".new")
    made.write_text(report.model_dump_json())
    made.replace(file)
