"""A handler's signature: its parameters with their types, the place of the Context, and the return annotation."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from mcpfleet.app.context import Context
from mcpfleet.app.errors import Mistake
from mcpfleet.app.schema import MISSING, Parameter
from mcpfleet.app.site import innermost


@dataclass(frozen=True, slots=True)
class Signature:
    """The parameters and the return annotation of a handler."""

    parameters: tuple[Parameter, ...]
    context: str | None
    """The parameter that takes the Context."""
    returns: Any
    """The resolved return annotation; `MISSING` if there is none."""


def read_signature(handler: Callable[..., Any]) -> Signature:
    """Read a handler's signature.

    Raises:
        Mistake: an annotation does not resolve, a parameter cannot be passed by name, or two take the Context.
    """
    signature = inspect.signature(handler)
    names = getattr(innermost(handler), "__globals__", {})
    parameters: list[Parameter] = []
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
        else:
            parameters.append(Parameter(name, annotation, declared.default))
    return Signature(tuple(parameters), context, _resolve("return", signature.return_annotation, names))


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
