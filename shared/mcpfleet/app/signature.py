"""A handler's signature: its parameters with their types, the places of what mcpfleet fills, the return annotation."""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from mcpfleet.app.context import Context
from mcpfleet.app.errors import Mistake
from mcpfleet.app.injected import Depends, dependency_in, is_lifespan
from mcpfleet.app.schema import MISSING, Parameter
from mcpfleet.app.site import innermost


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters and the return annotation of a handler."""

    parameters: tuple[Parameter, ...]
    context: str | None = None
    """The parameter that takes the Context."""
    returns: Any = MISSING
    """The resolved return annotation; `MISSING` if there is none."""
    depends: Mapping[str, Depends] = field(default_factory=dict)
    """The parameters that take dependencies."""
    lifespans: tuple[str, ...] = ()
    """The parameters that take what the lifespan yielded."""

    @property
    def injected(self) -> tuple[str, ...]:
        """The parameters that dependencies and the lifespan fill."""
        return (*self.depends, *self.lifespans)


def read_signature(handler: Callable[..., Any]) -> Signature:
    """Read a handler's signature, or that of a dependency.

    Raises:
        Mistake: it cannot be read, an annotation does not resolve, a parameter cannot be passed by name, two take the
            Context, or one is filled by two things.
    """
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError) as error:
        raise Mistake(f"its signature cannot be read ({error}): wrap it in a function of your own") from error
    names = _globals(handler)
    parameters: list[Parameter] = []
    depends: dict[str, Depends] = {}
    lifespans: list[str] = []
    context: str | None = None
    for name, declared in signature.parameters.items():
        annotation = _resolve(name, declared.annotation, names)
        _check_kind(declared)
        if annotation is Context:
            if context is not None:
                raise Mistake(f"takes the Context, as {context!r} does already: one is enough", name)
            context = name
        elif Context in typing.get_args(annotation):
            raise Mistake("must be annotated with `Context` alone: a call always has one", name)
        elif (dependency := dependency_in(annotation, name)) is not None:
            depends[name] = dependency
        elif is_lifespan(annotation):
            lifespans.append(name)
        elif isinstance(declared.default, Depends):
            raise Mistake("write `Annotated[…, Depends(…)]`, not a default: your own calls would get the default", name)
        else:
            parameters.append(Parameter(name, annotation, declared.default))
    returns = _resolve("return", signature.return_annotation, names)
    return Signature(tuple(parameters), context, returns, depends, tuple(lifespans))


def _globals(handler: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that annotations may use: those of the function's module, or of the class's."""
    function = innermost(handler)
    own: dict[str, Any] | None = getattr(function, "__globals__", None)
    return own if own is not None else vars(sys.modules.get(function.__module__, sys))


def _check_kind(declared: inspect.Parameter) -> None:
    """Refuse a parameter that cannot be filled by name: arguments have names and no order."""
    if declared.kind in (declared.VAR_POSITIONAL, declared.VAR_KEYWORD):
        raise Mistake(f"`{declared}` has no schema: name each parameter", declared.name)
    if declared.kind is declared.POSITIONAL_ONLY:
        raise Mistake("is positional-only, but arguments are passed by name", declared.name)


def _resolve(name: str, annotation: Any, names: dict[str, Any]) -> Any:
    """Evaluate an annotation that `from __future__ import annotations` keeps as text; one at a time, to name a bad
    one."""
    if annotation is MISSING:
        return MISSING
    holder = SimpleNamespace(__annotations__={name: annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)[name]
    except Exception as error:
        raise Mistake(
            f"the annotation {annotation!r} does not resolve ({error}): "
            "it must be importable at run time, from the module's top level",
            name,
        ) from error
