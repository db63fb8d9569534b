"""Permits: an application's functions that decide who may read a resource without reading it, or hear of keys (X50)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from mcpfleet.app.errors import Mistake
from mcpfleet.app.function import is_async
from mcpfleet.app.site import Site
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal

WITHIN: Final = 5.0
"""Seconds that one question to a permit may take."""

Caller: TypeAlias = Principal
"""The caller: subject, client, tenant, scopes, and the group that the operator's policy put it into."""


class Variables(dict[str, Any]):
    """The variables of one URI, parsed to the types of the resource's function; empty for a URI without variables.

    Attributes:
        uri: the URI itself, as the client wrote it.
    """

    def __init__(self, uri: str, values: dict[str, Any]) -> None:
        super().__init__(values)
        self.uri = uri


PermitFunction: TypeAlias = Callable[[Caller, list[Variables]], Any]
"""Takes a caller and the resources that it asks for; returns a list with True for each that it may read, else False."""
Permitting = TypeVar("Permitting", bound=PermitFunction)

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Readable(Protocol[P, R_co]):
    """The function of a resource, as a type checker sees it: the function itself, which knows how to get a permit."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""

    @property
    def permit(self) -> Callable[[Permitting], Permitting]:
        """Declare who may read the resource; used as `@account.permit`. See `Router.permit`."""


class Permitter(Protocol):
    """Something with a permit: a resource, or a notification of an own extension."""

    @property
    def definition(self) -> Definition:
        """Its definition, whose digest names the question."""

    async def permits(
        self, caller: Caller, asked: Sequence[str], threads: anyio.CapacityLimiter | None = None
    ) -> list[bool]:
        """Return the permit's answer about each URI or key; raise `PermitFailed`."""


class PermitFailed(Exception):
    """Raised when a permit gave no answer, so that nobody knows who may read; the sentence is for the log."""


class Permit:
    """A function that decides for a caller about some URIs of one resource, or some keys of one notification.

    Raises:
        Mistake: it does not take two parameters, or is a generator.
    """

    def __init__(self, function: Callable[..., Any], *, asks: str = "Variables") -> None:
        self.site = Site.of(function)
        self._function = function
        self._is_async = is_async(function)
        try:
            inspect.signature(function).bind(None, [])
        except (TypeError, ValueError):
            raise Mistake(
                f"a permit takes two parameters: `caller: Caller` and `asked: list[{asks}]`, and returns a list[bool]"
            ) from None

    async def ask(
        self, caller: Caller, asked: Sequence[Variables] | Sequence[str], threads: anyio.CapacityLimiter | None = None
    ) -> list[bool]:
        """Return for each URI whether the caller may read it, or for each key whether it may hear of it.

        Raises:
            PermitFailed: the function raised, took longer than 5 s, or returned something else than so many of True
                and False.
        """
        if not asked:
            return []
        try:
            with anyio.fail_after(WITHIN):
                answer = await self._call(caller, list(asked), threads)
        except TimeoutError as error:
            raise PermitFailed(f"{self.site} took longer than {WITHIN:g} s") from error
        except Exception as error:
            raise PermitFailed(f"{self.site} raised {type(error).__name__}") from error
        if not isinstance(answer, list | tuple) or len(answer) != len(asked):
            raise PermitFailed(f"{self.site} must return a list of {len(asked)}, one True or False for each asked")
        if any(each is not True and each is not False for each in answer):
            raise PermitFailed(f"{self.site} must return a list of True and False, and returned something else in it")
        return list(answer)

    async def _call(self, caller: Caller, asked: list[Any], threads: anyio.CapacityLimiter | None) -> Any:
        if self._is_async:
            return await self._function(caller, asked)
        value = await anyio.to_thread.run_sync(functools.partial(self._function, caller, asked), limiter=threads)
        return await value if inspect.isawaitable(value) else value


class Face:
    """The decorator `@account.permit`: it declares a permit for each resource that the function `account` serves."""

    def __init__(self) -> None:
        self.declare: list[Callable[[Callable[..., Any]], object]] = []
        """Each declares a permit in one place."""

    def __call__(self, function: Permitting) -> Permitting:
        """Declare a function as the permit."""
        for each in self.declare:
            each(function)
        return function


def show_face(handler: Callable[..., Any], declare: Callable[[Callable[..., Any]], object]) -> None:
    """Give a resource's function the attribute `permit`.

    What takes no attributes, as a bound method, gets none, and what has one of its own keeps it: `app.permit` is for
    these.
    """
    face = getattr(handler, "permit", None)
    if face is None:
        face = Face()
        try:
            handler.permit = face  # type: ignore[attr-defined]  # functions take attributes
        except (AttributeError, TypeError):
            return
    if isinstance(face, Face):
        face.declare.append(declare)
