"""Tracebacks as the author of an application reads them: the author's own frames, without those of libraries and ours.

A file is foreign if Python's installation or an installed package has it, or mcpfleet itself.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePath
from typing import Final, NamedTuple

import mcpfleet

_INSTALLED: Final = frozenset(("site-packages", "dist-packages"))
"""Names of the folders that have installed packages."""


class SourceLine(NamedTuple):
    """A line of a file."""

    file: str
    line: int | None

    def __str__(self) -> str:
        return shown_path(self.file) if self.line is None else f"{shown_path(self.file)}:{self.line}"


def shown_path(file: str) -> str:
    """Return a path as a person at this folder writes it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


@cache
def is_own(file: str) -> bool:
    """Return whether a file with code is the author's: not Python's, not an installed package's, and not ours."""
    if file.startswith("<"):
        return False
    path = PurePath(file)
    return _INSTALLED.isdisjoint(path.parts) and not any(path.is_relative_to(each) for each in _foreign())


@cache
def _foreign() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return (paths["stdlib"], paths["platstdlib"], *mcpfleet.__path__)


def place_of(error: BaseException) -> SourceLine | None:
    """Return where an error was made: the place that a syntax error names, or the innermost own frame; None without
    one."""
    if isinstance(error, SyntaxError) and error.filename:
        return SourceLine(error.filename, error.lineno)
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    return SourceLine(own[-1].filename, own[-1].lineno) if own else None


def own_traceback(error: BaseException) -> str:
    """Return an error as Python prints it, with its causes, but with the author's frames alone.

    An error without such frames keeps those that it has: then it is not of the author's code.
    """
    told = traceback.TracebackException.from_exception(error)
    for each in _chain(told):
        own = [frame for frame in each.stack if is_own(frame.filename)]
        if own:
            each.stack = traceback.StackSummary.from_list(own)
    return "".join(told.format()).rstrip()


def own_frames(error: BaseException) -> str:
    """Return the author's frames of an error, and below them the line that a syntax error shows; perhaps nothing."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]
    shown = traceback.StackSummary.from_list(frames).format()
    if isinstance(error, SyntaxError):
        told = traceback.TracebackException.from_exception(error, limit=0)
        shown += list(told.format_exception_only())[:-1]
    return "".join(shown).rstrip()


def last_line(error: BaseException) -> str:
    """Return an error's class and text as one line, with Python's guess of what was meant."""
    told = traceback.TracebackException.from_exception(error, limit=0)
    lines = [line.strip() for line in "".join(told.format_exception_only()).splitlines() if line.strip()]
    return lines[-1] if isinstance(error, SyntaxError) else " ".join(lines)


def _chain(told: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """An error, its causes, and the errors of its group."""
    yield told
    for beside in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if beside is not None:
            yield from _chain(beside)
