"""Lifespans: async context managers that each worker enters before its first call, and leaves after its last (X68)."""

from __future__ import annotations

import inspect
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import anyio
from anyio.abc import TaskStatus

from mcpfleet.app.errors import DeclarationError
from mcpfleet.app.site import Site, callee
from mcpfleet.process.errors import LoggedFailure, leaves

ENTER_WITHIN: Final = 30.0
"""Seconds in which all lifespans of a worker must be entered."""
LEAVE_WITHIN: Final = 10.0
"""Seconds in which they must be left."""


class LifespanFailed(LoggedFailure):
    """Raised when a lifespan fails; the text names the function, file and line, and what went wrong.

    Attributes:
        site: the lifespan's function.
    """

    def __init__(self, site: Site, why: str) -> None:
        super().__init__(f"the lifespan {site} {why}")
        self.site = site


class LifespanFunction:
    """A function that an App or a Router declares as its lifespan.

    Raises:
        DeclarationError: it is no async context manager, or takes more than the App.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.site = Site.of(function)
        if inspect.iscoroutinefunction(callee(function)) or inspect.isgeneratorfunction(callee(function)):
            raise DeclarationError("a lifespan is an async function that yields once", self.site)
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError) as error:
            raise DeclarationError(f"its signature cannot be read ({error})", self.site) from error
        required = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
        if len(required) > 1 or any(each.kind is each.KEYWORD_ONLY for each in required):
            raise DeclarationError("a lifespan takes the App, or nothing", self.site)
        self._takes_app = bool(required)

    def open(self, app: object) -> AbstractAsyncContextManager[Any]:
        """Return the context manager.

        Raises:
            TypeError: the function returned something else.
        """
        is_generator = inspect.isasyncgenfunction(callee(self.function))
        make = asynccontextmanager(self.function) if is_generator else self.function
        manager: Any = make(app) if self._takes_app else make()
        if not hasattr(manager, "__aenter__"):
            raise TypeError(f"returned {type(manager).__name__}, and a lifespan is an async context manager")
        opened: AbstractAsyncContextManager[Any] = manager
        return opened


class Scope:
    """The place of declarations, an App or a Router: its lifespan, and the functions that stand for others in it."""

    def __init__(self, outer: Callable[[], Iterable[Scope]] = lambda: ()) -> None:
        """Have no lifespan yet.

        Args:
            outer: returns the scope itself and those around it, the innermost first.
        """
        self.lifespan: LifespanFunction | None = None
        self._outer = outer
        self._overrides: dict[Any, Callable[..., Any]] = {}

    def outer(self) -> list[Scope]:
        """Return the scope itself and those around it, the innermost first."""
        return [self, *(each for each in self._outer() if each is not self)]

    def chosen_lifespan(self) -> LifespanFunction | None:
        """Return its lifespan, or what stands for it here."""
        if self.lifespan is None:
            return None
        other = self.replacements().get(self.lifespan.function)
        return self.lifespan if other is None else LifespanFunction(other)

    def replacements(self) -> dict[Any, Callable[..., Any]]:
        """Return the functions that stand for others here; the innermost scope's count."""
        found: dict[Any, Callable[..., Any]] = {}
        for each in reversed(self.outer()):
            found |= each._overrides  # noqa: SLF001  # its own class
        return found

    @contextmanager
    def override(self, function: Any, other: Callable[..., Any]) -> Iterator[None]:
        """Let another function stand for one inside of a block."""
        before = self._overrides.get(function)
        # Replaced as a whole: handlers read it on other threads.
        self._overrides = {**self._overrides, function: other}
        try:
            yield
        finally:
            rest = {key: value for key, value in self._overrides.items() if key != function}
            self._overrides = rest if before is None else {**rest, function: before}


class LifespanValues:
    """The values that the lifespans of one worker yielded."""

    def __init__(self) -> None:
        self._values: dict[Scope, Any] = {}

    def put(self, scope: Scope, value: Any) -> None:
        """Keep the value of a scope's lifespan."""
        self._values[scope] = value

    def of(self, scope: Scope) -> Any:
        """Return the value of the lifespan of a scope, or else of the nearest one around it.

        Raises:
            LookupError: none of them has a lifespan that runs.
        """
        for each in scope.outer():
            if each in self._values:
                return self._values[each]
        raise LookupError


NOTHING: Final = LifespanValues()
"""The values where no lifespan runs."""


def value_of(given: Any, scope: Scope, site: Site) -> Any:
    """Return what a parameter `Lifespan[…]` receives.

    Args:
        given: the values of a worker's lifespans, or the value itself that a test gives.
        scope: the place of the handler's declaration.
        site: the function with the parameter.

    Raises:
        RuntimeError: no lifespan runs.
    """
    if not isinstance(given, LifespanValues):
        return given
    try:
        return given.of(scope)
    except LookupError:
        raise RuntimeError(
            f"{site} takes `Lifespan[…]`, and no lifespan runs: a test gives `Context(lifespan=…)`"
        ) from None


class Lifespans:
    """The lifespans of an App as one worker runs them, in a task of their own: the outermost is the first."""

    def __init__(
        self,
        declared: Iterable[tuple[Scope, LifespanFunction]],
        app: object,
        *,
        enter_within: float = ENTER_WITHIN,
        leave_within: float = LEAVE_WITHIN,
    ) -> None:
        """Run nothing yet.

        Args:
            declared: the lifespans, in the order in which they are entered.
            app: for those that take it.
            enter_within: seconds to enter all of them.
            leave_within: seconds to leave them.
        """
        self.values = LifespanValues()
        self.failure: LifespanFailed | None = None
        """Why they failed, if they did."""
        self.enter_within = enter_within
        self.leave_within = leave_within
        self._declared = list(declared)
        self._app = app
        self._leaving = False
        self._is_given_up = False
        self._woken: anyio.Event | None = None
        self._scope: anyio.CancelScope | None = None
        self._at: LifespanFunction | None = None

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._declared)

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[LifespanValues]:
        """Enter them for a block, without bounds of time.

        Raises:
            LifespanFailed: one could not be entered or left, or failed meanwhile.
        """
        async with AsyncExitStack() as stack:
            for scope, function in self._declared:
                self._at = function
                self.values.put(scope, await stack.enter_async_context(self._named(function)))
            yield self.values

    def leave(self) -> None:
        """Have `run` leave them; on its loop."""
        self._leaving = True
        if self._woken is not None:
            self._woken.set()

    def give_up(self) -> None:
        """Cancel what `run` waits for, which is no failure; on its loop."""
        self._is_given_up = True
        if self._scope is not None:
            self._scope.cancel()

    def failed(self, why: str) -> LifespanFailed:
        """Return the failure of the one that is being entered, held or left."""
        assert self._at is not None
        return LifespanFailed(self._at.site, why)

    async def run(
        self,
        tell: Callable[[LifespanFailed], None] = lambda _: None,
        *,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Enter them, and leave them once told to; started when all are entered, or one has failed.

        Args:
            tell: hears of a failure once all are entered; one before that is in `failure`.
            task_status: tells that it has started.
        """
        is_entered = False
        # One scope around all: a lifespan may hold task groups, whose scopes must end before an inner one does.
        self._woken = anyio.Event()
        with anyio.CancelScope(deadline=anyio.current_time() + self.enter_within) as self._scope:
            try:
                async with self.entered():
                    is_entered, self._scope.deadline = True, math.inf
                    task_status.started()
                    await self._woken.wait()
                    self._scope.deadline = anyio.current_time() + self.leave_within
                if not self._leaving:
                    self._fail(self.failed("ended while the worker serves"))
            except LifespanFailed as failure:
                self._fail(failure)
        if self._scope.cancelled_caught and not self._is_given_up:
            what, seconds = ("left", self.leave_within) if is_entered else ("entered", self.enter_within)
            self._fail(self.failed(f"was not {what} within {seconds:g} s"))
        if not is_entered:
            task_status.started()
        elif self.failure is not None:
            tell(self.failure)

    @asynccontextmanager
    async def _named(self, function: LifespanFunction) -> AsyncIterator[Any]:
        """Run a lifespan; its errors name it."""
        try:
            async with function.open(self._app) as value:
                yield value
                self._at = function
        except LifespanFailed:  # of an inner one
            raise
        except Exception as error:
            raise LifespanFailed(function.site, f"failed: {_text(error)}") from error

    def _fail(self, failure: LifespanFailed) -> None:
        self.failure = self.failure or failure


def _text(error: BaseException) -> str:
    """Return an error's class and sentence; of a group, those of the errors in it."""
    return "; ".join(f"{type(leaf).__name__}: {leaf}" for leaf in leaves(error))
