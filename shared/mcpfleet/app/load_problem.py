"""Says in one sentence why a target cannot be loaded: the place, what is wrong, and what was probably meant."""

from __future__ import annotations

import importlib.util
import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import packages_distributions
from typing import Final

from mcpfleet.app.errors import DeclarationError, LoadError
from mcpfleet.process.tracebacks import SourceLine, last_line, own_frames, own_traceback, place_of

_ALIKE: Final = 0.75
"""How alike a module's name must be to be offered, from 0 to 1."""
_NO_NAME: Final = re.compile(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'")
"""Python's sentence for a name that a module lacks."""


@dataclass(frozen=True, slots=True)
class LoadProblem:
    """Why an application was not loaded."""

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


def load_problem(target: str, error: BaseException) -> LoadProblem:
    """Explain an error of `load`.

    Args:
        target: as it stands on the command line.
        error: the error.
    """
    traceback = ""
    place = place_of(error)
    if isinstance(error, DeclarationError) and error.site is not None and error.site.file is not None:
        place = SourceLine(error.site.file, error.site.line)
    where = str(place) if place is not None else target
    if isinstance(error, LoadError):
        message = str(error)
    elif isinstance(error, DeclarationError) and error.site is not None:
        message = f"{where}: {_declared(error)}"
    elif isinstance(error, ModuleNotFoundError) and error.name:
        message = f"{where}: {_missing(error.name)}"
    elif isinstance(error, ImportError) and (found := _NO_NAME.match(str(error))):
        message = f"{where}: {_lacking(**found.groupdict())}"
    elif isinstance(error, SystemExit):
        message = f"{where}: the module ends the process while it is imported (SystemExit: {error.code})"
    else:
        message = f"{where}: {last_line(error)}"
        has_cause = error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)
        traceback = own_traceback(error) if has_cause else own_frames(error)
    file, line = (place.file, place.line) if place is not None else (None, None)
    return LoadProblem(message, file, line, traceback)


def _declared(error: DeclarationError) -> str:
    """The sentence of a declaration's error, without the place again."""
    assert error.site is not None
    parameter = "" if error.parameter is None else f", parameter {error.parameter!r}"
    return f"{error.site.module}.{error.site.qualname}{parameter}: {error.why}"


def _lacking(name: str, module: str) -> str:
    """Say that a module lacks a name, and which one was probably meant."""
    close = get_close_matches(name, dir(sys.modules.get(module)), n=1, cutoff=_ALIKE)
    return f"{module!r} has no {name!r}" + (f": did you mean {close[0]!r}?" if close else "")


def _missing(name: str) -> str:
    """Say that a module is missing, and which one was probably meant."""
    parent, _, last = name.rpartition(".")
    said = f"no module {name!r}"
    if parent and _exists(parent):
        return f"{said}: {parent!r} has no {last!r}"
    known = {*sys.stdlib_module_names, *packages_distributions()}
    close = get_close_matches(name.partition(".")[0], known, n=1, cutoff=_ALIKE)
    if close:
        return f"{said}: did you mean {close[0]!r}?"
    return f"{said}: install its package, or name the folder that has it in PYTHONPATH"


def _exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
