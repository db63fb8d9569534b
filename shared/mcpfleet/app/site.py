"""The place of a declaration: its function, file and line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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
