"""Dependencies: functions whose values a handler takes, opened for one call and closed after it, in reverse order."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, TypeAlias

import anyio

from mcpfleet.app.context import Context
from mcpfleet.app.errors import DeclarationError, Mistake
from mcpfleet.app.function import in_thread, on_loop, when_sure
from mcpfleet.app.lifespan import Scope, value_of
from mcpfleet.app.schema import MISSING
from mcpfleet.app.signature import Signature, read_signature
from mcpfleet.app.site import Site, callee, innermost

CLOSE_WITHIN: Final = 5.0
"""Seconds that the dependencies of a call get to close, together, though the call is cancelled."""


class _Manner(Enum):
    """How a dependency gives its value."""

    RETURNS = auto()
    """A plain function returns it."""
    AWAITED = auto()
    """An async function returns it."""
    YIELDS = auto()
    """A generator, or a function that returns a context manager, yields it and goes on after the call."""
    YIELDS_ASYNC = auto()
    """The same, async."""


_Opener: TypeAlias = AbstractContextManager[Any] | AbstractAsyncContextManager[Any]


@dataclass(frozen=True, slots=True)
class _Needs:
    """The parameters of a function that mcpfleet fills."""

    context: str | None
    lifespans: tuple[str, ...]
    depends: tuple[tuple[str, _Dependency], ...]

    def arguments(self, ctx: Context, scope: Scope, values: dict[Any, Any], site: Site) -> dict[str, Any]:
        """Return the arguments for them; `values` has those of the dependencies."""
        given = {name: values[dependency.function] for name, dependency in self.depends}
        for name in self.lifespans:
            given[name] = value_of(ctx.lifespan, scope, site)
        if self.context is not None:
            given[self.context] = ctx
        return given


@dataclass(frozen=True, slots=True, eq=False)
class _Dependency:
    """A function that a parameter depends on."""

    function: Callable[..., Any]
    site: Site
    manner: _Manner
    needs: _Needs

    @property
    def is_async(self) -> bool:
        """Whether it runs on the event loop."""
        return self.manner in (_Manner.AWAITED, _Manner.YIELDS_ASYNC)

    def open(self, arguments: dict[str, Any], opened: list[_Opener]) -> Any:
        """Return the value of a plain one; its context manager, if it has one, joins those that are open."""
        if self.manner is _Manner.RETURNS:
            return self.function(**arguments)
        manager = self._manager(contextlib.contextmanager, arguments)
        value = manager.__enter__()
        opened.append(manager)
        return value

    async def open_async(self, arguments: dict[str, Any], opened: list[_Opener]) -> Any:
        """Return the value of an async one, in the same way."""
        if self.manner is _Manner.AWAITED:
            return await self.function(**arguments)
        manager = self._manager(contextlib.asynccontextmanager, arguments)
        value = await manager.__aenter__()
        opened.append(manager)
        return value

    def _manager(self, make: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        is_generator = inspect.isgeneratorfunction(callee(self.function)) or inspect.isasyncgenfunction(
            callee(self.function)
        )
        return make(self.function)(**arguments) if is_generator else self.function(**arguments)


@dataclass(frozen=True, slots=True)
class DependencyPlan:
    """All that is opened for a handler, and the order of it."""

    needs: _Needs
    order: tuple[_Dependency, ...]
    """Each dependency once, behind those that it needs."""

    @classmethod
    def of(cls, signature: Signature) -> DependencyPlan | None:
        """Return the plan of a handler; None if nothing but the Context is injected.

        Raises:
            Mistake: a dependency's signature cannot be read or filled, or dependencies form a circle; the text names
                the function, file and line.
        """
        if not signature.injected:
            return None
        needs = _needs(signature, ())
        return cls(needs, tuple(_ordered(needs)))

    @property
    def takes_lifespan(self) -> bool:
        """Whether the handler or a dependency takes what the lifespan yielded."""
        return bool(self.needs.lifespans or any(each.needs.lifespans for each in self.order))

    def functions(self) -> Iterator[tuple[Callable[..., Any], str | None]]:
        """Yield the functions of its dependencies, each with the parameter that takes the Context."""
        for dependency in self.order:
            yield dependency.function, dependency.needs.context

    def overridden(self, scope: Scope) -> DependencyPlan:
        """Return the plan with the functions that stand in a scope for others."""
        replacements = scope.replacements()
        if not replacements:
            return self
        needs = _replaced(self.needs, replacements, ())
        return DependencyPlan(needs, tuple(_ordered(needs)))


@dataclass(frozen=True, slots=True)
class InjectedCall:
    """One call of a handler that takes dependencies."""

    plan: DependencyPlan
    handler: Callable[..., Any]
    site: Site
    scope: Scope
    is_async: bool

    async def run(self, values: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None) -> Any:
        """Open the dependencies, call the handler with their values, and close them.

        An error of the handler, or a cancellation, is raised inside of each open dependency, at its `yield`. It goes on
        from there to the caller, or the error that the dependency raises in its place.
        """
        if not ctx.asker.is_sure:  # a dependency may have effects too (K26)
            await ctx.asker.make_sure()
        plan = self.plan.overridden(self.scope)
        if not self.is_async and not any(each.is_async for each in plan.order):
            # One thread for all of them: some values, such as connections of sqlite3, are of one thread alone.
            return await in_thread(functools.partial(self._run_plain, plan, values, ctx), threads, ctx.asker)
        return await self._run(plan, values, ctx, threads)

    def _run_plain(self, plan: DependencyPlan, values: dict[str, Any], ctx: Context) -> Any:
        known: dict[Any, Any] = {}
        opened: list[_Opener] = []
        try:
            for each in plan.order:
                value = each.open(each.needs.arguments(ctx, self.scope, known, each.site), opened)
                known[each.function] = on_loop(_awaited, value) if inspect.isawaitable(value) else value
            values.update(plan.needs.arguments(ctx, self.scope, known, self.site))
            ctx.begin()
            result = self.handler(**values)
            if inspect.isawaitable(result):  # of a plain decorator around an async function
                result = on_loop(_awaited, result)
        except BaseException as error:
            _close(opened, error)
            raise
        _close(opened, None)
        return result

    async def _run(
        self, plan: DependencyPlan, values: dict[str, Any], ctx: Context, threads: anyio.CapacityLimiter | None
    ) -> Any:
        known: dict[Any, Any] = {}
        opened: list[_Opener] = []
        result: Any = None
        # Around all that dependencies enter, so that it may protect their clean-up from the call's cancellation.
        with anyio.CancelScope() as scope:
            try:
                for each in plan.order:
                    arguments = each.needs.arguments(ctx, self.scope, known, each.site)
                    if each.is_async:
                        known[each.function] = await each.open_async(arguments, opened)
                    else:
                        opening = functools.partial(each.open, arguments, opened)
                        known[each.function] = await in_thread(opening, threads)
                values.update(plan.needs.arguments(ctx, self.scope, known, self.site))
                ctx.begin()
                handler = functools.partial(self.handler, **values)
                if self.is_async:
                    result = await when_sure(handler, ctx.asker)
                else:
                    result = await in_thread(handler, threads, ctx.asker)
            except BaseException as error:
                _protect(scope)
                await _close_async(opened, error, threads)
                raise
            _protect(scope)
            await _close_async(opened, None, threads)
        if scope.cancelled_caught:
            raise RuntimeError(f"the dependencies of {self.site} did not close within {CLOSE_WITHIN:.0f} s")
        return result


def replacement(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check that a function can stand for a dependency; returns it.

    Raises:
        DeclarationError: its signature cannot be read or filled.
    """
    try:
        _dependency(function, ())
    except Mistake as mistake:
        raise DeclarationError(mistake.why, Site.of(function), mistake.parameter) from mistake.__cause__
    return function


# -- plans ------------------------------------------------------------------------------------------------------------


def _needs(signature: Signature, path: tuple[Any, ...]) -> _Needs:
    depends = []
    for name, stated in signature.depends.items():
        try:
            depends.append((name, _dependency(stated.function, path)))
        except Mistake as mistake:
            raise Mistake(mistake.why, name) from mistake.__cause__
    return _Needs(signature.context, signature.lifespans, tuple(depends))


def _dependency(function: Callable[..., Any], path: tuple[Any, ...]) -> _Dependency:
    site = Site.of(function)
    try:
        hash(function)
    except TypeError:
        raise Mistake(f"the dependency {site} is not hashable: wrap it in a function") from None
    if function in path:
        way = [str(Site.of(step)) for step in (*path, function)]
        raise Mistake(f"its dependencies form a circle: {' needs '.join(way)}")
    try:
        signature = read_signature(function)
    except Mistake as mistake:
        where = "" if mistake.parameter is None else f"parameter {mistake.parameter!r} "
        raise Mistake(f"the dependency {site}: {where}{mistake.why}") from mistake.__cause__
    for parameter in signature.parameters:
        if parameter.default is MISSING:
            raise Mistake(
                f"the dependency {site} takes {parameter.name!r}, which nothing fills: annotate it with `Context`, "
                "`Lifespan[…]` or `Annotated[…, Depends(…)]`, or give it a default"
            )
    return _Dependency(function, site, _manner(function), _needs(signature, (*path, function)))


def _manner(function: Callable[..., Any]) -> _Manner:
    own, below = callee(function), innermost(function)
    # `@contextmanager` and `@asynccontextmanager` leave the generator below them.
    for each in (own, below):
        if inspect.isasyncgenfunction(each):
            return _Manner.YIELDS_ASYNC
        if inspect.isgeneratorfunction(each):
            return _Manner.YIELDS
    return _Manner.AWAITED if inspect.iscoroutinefunction(own) else _Manner.RETURNS


def _ordered(needs: _Needs) -> list[_Dependency]:
    found: dict[Any, _Dependency] = {}

    def add(needs: _Needs) -> None:
        for _, each in needs.depends:
            if each.function not in found:
                add(each.needs)
                found[each.function] = each

    add(needs)
    return list(found.values())


def _replaced(needs: _Needs, replacements: dict[Any, Callable[..., Any]], path: tuple[Any, ...]) -> _Needs:
    depends = []
    for name, each in needs.depends:
        other = replacements.get(each.function)
        if other is None or each.function in path:
            made = each
        else:
            made = _dependency(other, ())
            path = (*path, each.function)
        depends.append((name, _with_needs(made, _replaced(made.needs, replacements, path))))
    return _Needs(needs.context, needs.lifespans, tuple(depends))


def _with_needs(dependency: _Dependency, needs: _Needs) -> _Dependency:
    return _Dependency(dependency.function, dependency.site, dependency.manner, needs)


# -- closing ----------------------------------------------------------------------------------------------------------


def _close(opened: list[_Opener], error: BaseException | None) -> None:
    """Close what is open in a thread, the newest first; raises the error that one raises in place of the first."""
    first = error
    for manager in reversed(opened):
        assert isinstance(manager, AbstractContextManager)
        try:
            manager.__exit__(*_told(error))
        except BaseException as other:
            error = other
    if error is not None and error is not first:
        raise error


async def _close_async(
    opened: list[_Opener], error: BaseException | None, threads: anyio.CapacityLimiter | None
) -> None:
    first = error
    for manager in reversed(opened):
        try:
            if isinstance(manager, AbstractAsyncContextManager):
                await manager.__aexit__(*_told(error))
            else:
                await in_thread(functools.partial(manager.__exit__, *_told(error)), threads)
        except BaseException as other:
            error = other
    if error is not None and error is not first:
        raise error


def _told(error: BaseException | None) -> tuple[type[BaseException] | None, BaseException | None, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _protect(scope: anyio.CancelScope) -> None:
    """Let clean-up finish though the call is cancelled, within its time."""
    scope.shield = True
    scope.deadline = anyio.current_time() + CLOSE_WITHIN


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
