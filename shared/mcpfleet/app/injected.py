"""The annotations of parameters that mcpfleet fills itself: `Depends` and `Lifespan`. Clients never see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_origin

from mcpfleet.app.errors import Mistake

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class Depends:
    """Gives a parameter the value of a function: `db: Annotated[Database, Depends(get_db)]`.

    The function may be plain or async, and may `yield` the value once to close it after the call. It is called once for
    a call, however many parameters depend on it. Its own parameters may be the Context, `Lifespan[…]` and other
    dependencies.
    """

    function: Callable[..., Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"Depends takes a function, not {self.function!r}")


class _TheLifespan:
    def __repr__(self) -> str:
        return "Lifespan"


_LIFESPAN: Final = _TheLifespan()

Lifespan: TypeAlias = Annotated[State, _LIFESPAN]
"""Gives a parameter what the App's lifespan yielded: `pool: Lifespan[Pool]`."""


def dependency_in(annotation: Any, name: str) -> Depends | None:
    """Return the dependency that an annotation names.

    Raises:
        Mistake: it names two, or the lifespan too, or has the dependency below its top.
    """
    found = [each for each in _metadata(annotation) if isinstance(each, Depends)]
    if len(found) + is_lifespan(annotation) > 1:
        raise Mistake("depends on two things: one is enough", name)
    if not found and _is_below(annotation):
        raise Mistake("has `Depends` or `Lifespan` inside of its annotation: write it outermost", name)
    return found[0] if found else None


def is_lifespan(annotation: Any) -> bool:
    """Return whether an annotation is `Lifespan[…]`."""
    return any(each is _LIFESPAN for each in _metadata(annotation))


def _metadata(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()


def _is_below(annotation: Any) -> bool:
    """Return whether a part of an annotation is injected, as in `Annotated[Pool, Depends(get)] | None`."""
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        inner = inner[:1]
    return any(_is_marked(each) or _is_below(each) for each in inner)


def _is_marked(annotation: Any) -> bool:
    return is_lifespan(annotation) or any(isinstance(each, Depends) for each in _metadata(annotation))
