"""The place of a declaration: its function, file and line, and the version of what it belongs to."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Site:
    """The function of a declaration."""

    module: str
    qualname: str
    file: str | None = None
    line: int | None = None

    @classmethod
    def of(cls, handler: Callable[..., Any]) -> Site:
        """Return the place of a handler's own function, below decorators and partials."""
        function = innermost(handler)
        code = getattr(function, "__code__", None)
        return cls(
            function.__module__,
            function.__qualname__,
            code.co_filename if code else None,
            code.co_firstlineno if code else None,
        )

    @classmethod
    def of_caller(cls) -> Site:
        """Return the place that called the function that asks."""
        asking = inspect.currentframe()
        frame = asking and asking.f_back and asking.f_back.f_back
        if frame is None:
            return cls("?", "?")
        code = frame.f_code
        return cls(frame.f_globals.get("__name__", "?"), code.co_qualname, code.co_filename, frame.f_lineno)

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.qualname.rpartition(".")[2]

    def __str__(self) -> str:
        name = f"{self.module}.{self.qualname}"
        return name if self.file is None else f"{name} ({self.file}:{self.line})"


def callee(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a call really runs: below partials, bound methods and objects with `__call__`."""
    while True:
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        elif inspect.isroutine(handler) or inspect.isclass(handler):
            return handler
        else:
            handler = type(handler).__call__


def innermost(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return the author's own function: below decorators too, if they tell what they wrap."""
    function = callee(handler)
    while (wrapped := getattr(function, "__wrapped__", None)) is not None:
        function = callee(wrapped)
    return function


UNVERSIONED: Final = "0.0.0"
"""The version of an App that states none and belongs to no installed distribution: `serverInfo` must have one."""


def installed_version(module: str) -> str:
    """Return the version of the installed distribution that has the name of a module's package, else `UNVERSIONED`.

    A module without a package is not looked up: another distribution may have the name of a file such as `server.py`.
    """
    package, dot, _ = module.partition(".")
    if not dot:
        return UNVERSIONED
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415  # few Apps need it

    try:
        return version(package)
    except PackageNotFoundError:
        return UNVERSIONED
