"""The call as its handler sees it, for async functions and, by blocking calls, for plain ones."""

# Longer than 400 lines: one class for authors and its blocking twin, described where editors show them.

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar, Unpack, overload

import anyio
import anyio.from_thread
import anyio.lowlevel
from mcp_types import CreateMessageResultWithTools, LoggingLevel, Root

from mcpfleet.app import question
from mcpfleet.app.cancellation import Cancelled
from mcpfleet.app.client import Client, LogMessage, Progress, is_news
from mcpfleet.app.declaration import check_scopes
from mcpfleet.app.errors import AskError, Mistake, ProgressError, ScopeNeeded
from mcpfleet.app.function import on_any_loop, on_loop, run_step, running_step
from mcpfleet.app.input import NOBODY, Asker, Question
from mcpfleet.app.lifespan import NOTHING
from mcpfleet.app.localized import SOURCE, Localizer
from mcpfleet.app.notification import Notification
from mcpfleet.app.task import TaskMaker
from mcpfleet.app.unawaited import noted
from mcpfleet.contracts.call import MOST_NEEDED
from mcpfleet.contracts.hints import LISTS, Change, check_published
from mcpfleet.contracts.principal import Principal

Report = Callable[[Progress], None]
"""Takes a progress report to be sent; called on the handlers' event loop, and must not block."""
Log = Callable[[LogMessage], None]
"""Takes a log message for the client, in the same way."""

Filled = TypeVar("Filled")
Result = TypeVar("Result")
First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
Fourth = TypeVar("Fourth")


class Context:
    """One call, as its handler sees it: a parameter annotated with `Context` receives it.

    A test builds one itself, with only the parts that the handler uses: `Context()`, or
    `Context(report=reports.append, principal=Principal(subject="ann"))`.

    Args:
        principal: the caller; anonymous by default.
        client: the calling client; by default one without statements.
        deadline: the end of the call, by `time.monotonic()`, in seconds; never, by default.
        cancelled: tells whether the call is cancelled; by default it never is.
        report: takes the progress; None if nobody asked for it (P1).
        asker: answers the handler's questions; by default it declares none.
        log: takes messages for the client; None if it asked for none (M49).
        threads: bounds the threads for plain functions of steps.
        publish: tells those who watch something that it has changed; None tells nobody.
        defer: makes a task of the call; None if the tool does not declare that.
        is_task: it is a task already.
        lifespan: what `Lifespan[…]` parameters receive.
        texts: translates its texts: `app.texts("de")`; by default they stay as they are.
    """

    __slots__ = (
        "_asker",
        "_begins_for",
        "_cancelled",
        "_client",
        "_deadline",
        "_defer",
        "_ended",
        "_has_begun",
        "_is_task",
        "_last",
        "_lifespan",
        "_log",
        "_needed",
        "_principal",
        "_publish",
        "_report",
        "_texts",
        "_threads",
        "has_translated",
        "is_used",
    )

    def __init__(
        self,
        *,
        principal: Principal | None = None,
        client: Client | None = None,
        deadline: float = math.inf,
        cancelled: Cancelled | None = None,
        report: Report | None = None,
        asker: Asker = NOBODY,
        log: Log | None = None,
        threads: anyio.CapacityLimiter | None = None,
        publish: Callable[[Change], None] | None = None,
        defer: TaskMaker | None = None,
        is_task: bool = False,
        lifespan: Any = NOTHING,
        texts: Localizer = SOURCE,
    ) -> None:
        self._principal = principal
        self._client = client
        self._deadline = deadline
        self._cancelled = cancelled
        self._report = report
        self._asker = asker
        self._log = log
        self._threads = threads
        self._publish = publish
        self._defer = defer
        self._is_task = is_task
        self._lifespan = lifespan
        self._texts = texts
        self.has_translated = False
        """Whether `t` was used. For the runner of the handler."""
        self._last: float | None = None
        self._ended = False
        self._has_begun = False
        self._begins_for: Context | None = None
        self._needed: tuple[str, ...] = ()
        self.is_used = False
        """Whether an awaitable method was called. For `need`, which stands before them."""

    @property
    def principal(self) -> Principal:
        """The caller: subject, client, tenant and scopes; never its token."""
        if self._principal is None:
            self._principal = Principal()
        return self._principal

    @property
    def client(self) -> Client:
        """The calling client's own statements: `info` and `capabilities`."""
        if self._client is None:
            self._client = Client()
        return self._client

    @property
    def deadline(self) -> float:
        """The end of the call whatever it reports, by `time.monotonic()`, in seconds (M59)."""
        return self._deadline

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; 0 once it has passed."""
        return max(0.0, self._deadline - time.monotonic())

    @property
    def cancelled(self) -> Cancelled:
        """Whether the result is no longer wanted: `if ctx.cancelled:`, `await ctx.cancelled.wait()`, callbacks."""
        if self._cancelled is None:
            self._cancelled = Cancelled()
        return self._cancelled

    @property
    def sync(self) -> SyncContext:
        """The same for a handler that is a plain function, and so runs in a thread."""
        return SyncContext(self)

    @property
    def language(self) -> str | None:
        """The language of the call's texts, such as "pt-BR": one that the App declares; None if it declares none.

        An argument of the tool that names a language goes before it (X30).
        """
        return self._texts.language

    def t(self, text: str, plural: str | None = None, /, **values: object) -> str:
        """Return a text in the language of the call: `ctx.t("{n} item", "{n} items", n=n)`.

        A text without a translation stays as it is. Names in braces are filled; doubled braces stand for themselves.
        Questions and the labels of forms need no `t`: they are translated by themselves.

        Args:
            text: the source, as the message file has it.
            plural: the source for other numbers than one; `n` is the number, whose plural form the language chooses.
            values: what the names in braces stand for.

        Raises:
            TextError: a name has no value, or there is a plural and `n` is no integer.
        """
        self.has_translated = True
        return self._texts.render(text, plural, values)

    def need(self, *scopes: str) -> None:
        """Go on only if the caller has these scopes; for what `scopes` and `scopes_if` of the declaration cannot tell.

        Otherwise the call ends refused: its client gets 403 with all scopes of the call, asks the user for them, and
        calls again. If the client has been sent anything, a model reads which scopes are missing. The handler runs
        again from its top then, so no effect may stand before it. Its idempotency key stays free. Without credentials
        nobody needs scopes.

        Raises:
            ScopeNeeded: the caller lacks one; let it through.
            AskError: it stands behind another use of the Context, or a scope has no valid form.
        """
        if not 0 < len(scopes) <= MOST_NEEDED:
            raise AskError(f"ctx.need takes 1 to {MOST_NEEDED} scopes, not {len(scopes)}")
        try:
            check_scopes(scopes)
        except Mistake as mistake:
            raise AskError(f"ctx.need: {mistake.why}") from None
        if self.is_used:
            raise AskError("ctx.need stands before any other use of ctx: what was told or done cannot be taken back")
        self._needed = tuple(dict.fromkeys((*self._needed, *scopes)))
        if not self.principal.holds(scopes):
            raise ScopeNeeded(self._needed)

    @noted
    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client the progress of the call.

        A greater value than before is sent, an equal one is dropped; the first is always sent. It does nothing if the
        client did not ask, and once the call is cancelled or over (P3). Progress moves no deadline.

        Args:
            value: the amount done, in any unit.
            total: the value at the end, if known.
            message: a line for people.

        Raises:
            ProgressError: the value or the total is not finite, or the value is less than before.
        """
        if not self._ended and not self._cancelled:
            report = Progress(value, total, message)
            if is_news(self._last, report):
                self._last = value
                if self._report is not None:
                    self._report(report)
        # A handler that computes without a pause lets others run here, and hears its cancel.
        await anyio.lowlevel.checkpoint()

    @noted
    async def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a message to the client's log; for your own, use `logging`. It must hold no secrets (M49).

        It is sent if the request asked for this level or a lower one, at most 20 a second; others are dropped.

        Args:
            level: from "debug" to "emergency".
            data: a text, or any JSON value.
            logger: the name of the part that logs.

        Raises:
            ValueError: the level is unknown.
        """
        message = LogMessage(level, data, logger)
        if self._log is not None and not self._ended and not self._cancelled:
            self._log(message)
        await anyio.lowlevel.checkpoint()

    @noted
    async def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource that it has changed.

        This is a hint, which may be lost or doubled: a client that gets it reads again.

        Args:
            uri: the URI that clients read.

        Raises:
            BadUri: it is not absolute and normalized (S5).
        """
        check_published(uri)
        if self._publish is not None:
            self._publish(uri)
        await anyio.lowlevel.checkpoint()

    @noted
    async def resources_changed(self) -> None:
        """Tell the clients that listen to lists that `@app.resources()` functions return something else.

        This is a hint, which may be lost or doubled: a client that gets it lists again.
        """
        if self._publish is not None:
            self._publish(LISTS)
        await anyio.lowlevel.checkpoint()

    @noted
    async def tell(self, notification: Notification, key: str) -> None:
        """Tell the clients whose filter has the key that it has changed: `await ctx.tell(changed, "lamp")`.

        This is a hint, which may be lost or doubled, and equal keys coalesce: a client that gets it looks again.

        Args:
            notification: what `ext.notification(…)` returned.
            key: 1 to 2,048 characters.

        Raises:
            AskError: the key has another length, or no App has the notification's extension.
        """
        change = notification.change(key)
        if self._publish is not None:
            self._publish(change)
        await anyio.lowlevel.checkpoint()

    # -- tasks --------------------------------------------------------------------------------------------------------

    @property
    def is_task(self) -> bool:
        """Whether this is a durable task: it outlives its client, its worker and every process."""
        return self._is_task

    @property
    def can_defer(self) -> bool:
        """Whether the call is a task, or can become one because its client takes handles of tasks."""
        return self._is_task or (self._defer is not None and self._defer.can)

    @noted
    async def defer(self) -> None:
        """Make a durable task of the call, and go on as that; do nothing if it already is one.

        The client gets the task's handle at once. The task keeps earlier answers and steps. The declaration must say
        `task="optional"`.

        Raises:
            ClientLacks: the client takes no tasks; `ctx.can_defer` tells beforehand.
            AskError: the declaration does not allow it.
        """
        if self._is_task:
            await anyio.lowlevel.checkpoint()
            return
        if self._defer is None:
            raise AskError('the handler defers without a declaration: add task="optional"')
        onward = await self._defer()
        self._asker, self._report, self._deadline = onward.asker, onward.report, onward.deadline
        self._log, self._is_task = None, True

    @property
    def step_key(self) -> str | None:
        """The key of the running step, the same over all attempts of a task: an idempotency key for called systems.

        None outside of a step, and in a call that is not a task.
        """
        return running_step.get()

    # -- questions ----------------------------------------------------------------------------------------------------

    def can_ask(self, name: str) -> bool:
        """Return whether the client can answer `name`, such as "sampling", and the declaration names it."""
        return self._asker.can_ask(name)

    @overload
    async def elicit(self, message: str, wanted: type[Filled], *, key: str | None = None) -> Filled: ...
    @overload
    async def elicit(self, message: str, wanted: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...
    @noted
    async def elicit(self, message: str, wanted: Any, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, and return its content.

        **The handler runs again from its top with the answer at hand.** So an effect before a question belongs into
        `ctx.step`, or it happens again (M53). A question in the handler's own code needs no declaration; a question
        elsewhere, such as in a function that the handler calls with its Context, needs `asks` (D16).

        Args:
            message: tells the user the purpose.
            wanted: a model, dataclass or TypedDict of texts, numbers, booleans, dates and choices, or a JSON Schema
                of such an object.
            key: names the question over all runs; by default its order does.

        Raises:
            Declined: the user declined; uncaught, the model reads that.
            ClientLacks: the client shows no forms.
            AskError: the declaration does not name the question, or the form is not flat.
        """
        (answer,) = await self._asker.ask((question.form(message, wanted, key=key),))
        return answer

    @noted
    async def elicit_url(self, message: str, address: str, *, key: str | None = None) -> None:
        """Ask the user to open a page; return once they agree, which tells nothing about the page (M56).

        Raises:
            Declined: the user declined.
            ClientLacks: the client opens no pages.
            AskError: the declaration does not name the question, or the address is not https.
        """
        await self._asker.ask((question.url(message, address, key=key),))

    @noted
    async def sample(
        self, messages: question.Messages, *, max_tokens: int, key: str | None = None,
        **told: Unpack[question.Sampling],
    ) -> CreateMessageResultWithTools:  # fmt: skip
        """Ask the client's model to continue a conversation.

        Raises:
            ClientLacks: the client has no model to ask.
            AskError: the declaration does not name the question, or the conversation breaks M57.
        """
        (answer,) = await self._asker.ask((question.sample(messages, max_tokens=max_tokens, key=key, **told),))
        result: CreateMessageResultWithTools = answer
        return result

    @noted
    async def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the directories and files that the user has opened to servers.

        Raises:
            ClientLacks: the client has no roots to tell.
            AskError: the declaration does not name the question.
        """
        (answer,) = await self._asker.ask((question.roots(key=key),))
        result: list[Root] = answer
        return result

    @overload
    async def ask(self, first: Question[First], /) -> tuple[First]: ...
    @overload
    async def ask(self, first: Question[First], second: Question[Second], /) -> tuple[First, Second]: ...
    @overload
    async def ask(
        self, first: Question[First], second: Question[Second], third: Question[Third], /
    ) -> tuple[First, Second, Third]: ...
    @overload
    async def ask(
        self, first: Question[First], second: Question[Second], third: Question[Third], fourth: Question[Fourth], /
    ) -> tuple[First, Second, Third, Fourth]: ...
    @overload
    async def ask(self, *questions: Question[Any]) -> tuple[Any, ...]: ...
    @noted
    async def ask(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask several questions of `mcpfleet.app.question` at once; return the answers in their order.

        Raises:
            Declined: the user declined one.
            ClientLacks: the client cannot answer one.
            AskError: the declaration does not name one.
        """
        return tuple(await self._asker.ask(questions))

    @overload
    async def step(self, name: str, function: Callable[..., Awaitable[Result]], *arguments: Any) -> Result: ...
    @overload
    async def step(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result: ...
    @noted
    async def step(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Do work once, though the handler may run again from its top: the result is remembered (M53).

        A step is known by its name, its arguments and its order among equal ones. Arguments and result are JSON, or
        values that pydantic reads back by the function's return annotation. A call remembers up to 32 KiB in all.

        Raises:
            AskError: an argument or the result is not JSON.
            Exception: the function raised it.
        """
        return await run_step(self._asker, name, function, arguments, self._threads)

    @property
    def lifespan(self) -> Any:
        """The values of the lifespans. For the runner of the handler, which gives it to `Lifespan[…]` parameters."""
        return self._lifespan

    @property
    def asker(self) -> Asker:
        """Answers questions, and tells whether work may begin. For the runner of the handler."""
        return self._asker

    @property
    def has_begun(self) -> bool:
        """Whether the handler has begun, behind interceptors and checks of arguments. For the runner of the handler."""
        return self._has_begun

    def forward(self, report: Progress) -> None:
        """Pass on the progress of a server that runs the call. For the package's own use.

        What is no progress, such as a value that goes back, is dropped: its author cannot be told.
        """
        if self._report is None or self._ended or self._cancelled:
            return
        with suppress(ProgressError):
            if is_news(self._last, report):
                self._last = report.value
                self._report(report)

    def begin(self) -> None:
        """Note that the handler begins. For the runner of the handler."""
        self._has_begun, self.is_used = True, False
        if (other := self._begins_for) is not None:
            self._begins_for = None
            other.begin()

    def begin_for(self, other: Context) -> None:
        """Note that an interceptor has given its handler this one in another's place. For the runner of the handler.

        An interceptor may give the same to several calls at once. Then a call that still waits counts as begun, since
        only a call that has certainly not begun leaves its idempotency key free (D19).
        """
        if other is not self:
            if self._begins_for is not None:
                self._begins_for.begin()
            self._begins_for = other

    def end(self) -> None:
        """End the call: later reports do nothing. For the runner of the handler."""
        self._ended = True


class SyncContext:
    """The awaitable methods of a Context for handlers in a thread: each call blocks until it is done.

    They also work where a test calls a plain function itself, with a Context of its own.
    """

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client the progress of the call, as `Context.progress` does.

        Raises:
            ProgressError: the value or the total is not finite, or the value is less than before.
            RuntimeError: the call's handler runs in another thread.
        """
        self._run(self._context.progress, value, total, message)

    def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send a message to the client's log, as `Context.log` does."""
        self._run(self._context.log, level, data, logger)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch a resource, as `Context.resource_updated` does."""
        self._run(self._context.resource_updated, uri)

    def resources_changed(self) -> None:
        """Tell the clients that listen to lists, as `Context.resources_changed` does."""
        self._run(self._context.resources_changed)

    def tell(self, notification: Notification, key: str) -> None:
        """Tell the clients whose filter has the key, as `Context.tell` does."""
        self._run(self._context.tell, notification, key)

    def defer(self) -> None:
        """Make a durable task of the call, as `Context.defer` does."""
        self._run(self._context.defer)

    def need(self, *scopes: str) -> None:
        """Go on only if the caller has these scopes, as `Context.need` does."""
        self._context.need(*scopes)

    def t(self, text: str, plural: str | None = None, /, **values: object) -> str:
        """Return a text in the language of the call, as `Context.t` does."""
        return self._context.t(text, plural, **values)

    def can_ask(self, name: str) -> bool:
        """Return whether the client can answer `name`, and the declaration names it."""
        return self._context.can_ask(name)

    @overload
    def elicit(self, message: str, wanted: type[Filled], *, key: str | None = None) -> Filled: ...
    @overload
    def elicit(self, message: str, wanted: Mapping[str, Any], *, key: str | None = None) -> dict[str, Any]: ...
    def elicit(self, message: str, wanted: Any, *, key: str | None = None) -> Any:
        """Ask the user to fill in a form, as `Context.elicit` does."""
        (answer,) = self.ask(question.form(message, wanted, key=key))
        return answer

    def elicit_url(self, message: str, address: str, *, key: str | None = None) -> None:
        """Ask the user to open a page, as `Context.elicit_url` does."""
        self.ask(question.url(message, address, key=key))

    def sample(
        self, messages: question.Messages, *, max_tokens: int, key: str | None = None,
        **told: Unpack[question.Sampling],
    ) -> CreateMessageResultWithTools:  # fmt: skip
        """Ask the client's model to continue a conversation, as `Context.sample` does."""
        (answer,) = self.ask(question.sample(messages, max_tokens=max_tokens, key=key, **told))
        result: CreateMessageResultWithTools = answer
        return result

    def roots(self, *, key: str | None = None) -> list[Root]:
        """Ask for the roots that the user has opened to servers, as `Context.roots` does."""
        (answer,) = self.ask(question.roots(key=key))
        result: list[Root] = answer
        return result

    def ask(self, *questions: Question[Any]) -> tuple[Any, ...]:
        """Ask several questions at once, as `Context.ask` does."""
        answers: tuple[Any, ...] = self._run(self._context.ask, *questions)
        return answers

    def step(self, name: str, function: Callable[..., Result], *arguments: Any) -> Result:
        """Do work once, as `Context.step` does."""
        # A thread beyond the bound: this one waits for it, and were all to wait for a free one, none would come free.
        result: Result = self._run(run_step, self._context.asker, name, function, arguments, anyio.CapacityLimiter(1))
        return result

    def _run(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        # A worker's reports belong to its loop. Only a Context that no worker has begun may use another.
        return (on_loop if self._context.has_begun else on_any_loop)(function, *arguments)
