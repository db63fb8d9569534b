"""`mcpfleet call`, `read`, `prompt` and `complete`: a request to an endpoint, and answers to its questions."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias

import anyio
from mcp import Client
from mcp.client.context import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    PromptReference,
    ResourceTemplateReference,
)

from mcpfleet.cli.ask import Answerer, GivenAnswers, Terminal
from mcpfleet.cli.endpoint_client import EndpointClient
from mcpfleet.cli.known_names import KnownNames
from mcpfleet.cli.listing import pages, wire
from mcpfleet.cli.results import Output, complain, say, show_contents, show_messages, show_result
from mcpfleet.cli.signatures import printable, prompt_signature, tool_signature
from mcpfleet.cli.typed_arguments import WrongArguments, near, read_arguments, split
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY, MODERN

_Request: TypeAlias = Callable[[Client, "_Bar"], Awaitable[int]]
_UNKNOWN_RESOURCE: Final = (INVALID_PARAMS, -32002)
"""The codes for an unknown resource; servers of 2025 send the second."""
_VARIABLE: Final = re.compile(r"\{[+#./;?&]?([A-Za-z0-9_]+)")
"""A variable of a URI template."""
_LONGEST_MESSAGE: Final = 200
"""Characters of a report's message beside the bar."""
_MOST_SHOWN: Final = 1e15
"""A number of a report is below it, or is not shown."""
_ANSWERED_LATER: Final = "no answer"
"""The text for a server whose question could not be answered; the person reads the reason."""


@dataclass(frozen=True)
class Caller:
    """A person at an endpoint: how long they wait, what they answer, and how they read."""

    endpoint: EndpointClient
    timeout: float
    """Seconds for each answer of the server."""
    output: Output
    answers: Sequence[str] = ()
    """`name=value` pairs for questions."""

    def run(self, request: _Request, what: str) -> int:
        """Make a request, and answer its questions; returns the exit code.

        Raises:
            ConfigurationError: an argument or an answer is wrong.
        """
        return anyio.run(self._run, request, what)

    async def _run(self, request: _Request, what: str) -> int:
        given = GivenAnswers(self.answers)
        bar = _Bar(what, shown=not self.output.as_json and sys.stderr.isatty())
        questions = _Questions(Answerer(given, Terminal.here(), bar.aside))
        try:
            with bar:
                async with self.endpoint.open(self.timeout, elicitation_callback=questions.answer) as client:
                    questions.client = client
                    code = await request(client, bar)
        except Exception as error:
            wrong = [leaf for leaf in (questions.failure, *leaves(error)) if isinstance(leaf, ConfigurationError)]
            if wrong:
                raise wrong[0] from None
            return complain(self.endpoint.reason(error))
        if questions.failure is not None:
            raise questions.failure
        if given.unused():
            say(f"no question asked for --answer {', '.join(given.unused())}", err=True, colour="yellow")
        return code


class _Questions:
    """The client's callback for questions. A failure of ours is kept for the person; the server hears of none."""

    def __init__(self, answerer: Answerer) -> None:
        self.client: Client | None = None
        self.failure: ConfigurationError | None = None
        self._asker = answerer

    async def answer(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Answer a question, whose key is that of its round; a session of 2025 has no keys."""
        modern = self.client is not None and self.client.protocol_version == MODERN
        try:
            key = str(context.request_id) if modern else "question"
            return ElicitResult.model_validate(await self._asker.answer(key, wire(params)))
        except ConfigurationError as error:
            self.failure = error
            return ErrorData(code=INVALID_REQUEST, message=_ANSWERED_LATER)


class _Bar:
    """A bar of a request's progress; nothing where nobody looks."""

    def __init__(self, what: str, *, shown: bool) -> None:
        self._what = what
        self._progress: Any = None
        if shown:
            self._make()

    def _make(self) -> None:
        from rich.console import Console  # noqa: PLC0415  # only a terminal needs it
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
            TimeElapsedColumn(),
        )  # fmt: skip
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._progress.add_task(self._what, total=None)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Show a report of the server."""
        if self._progress is not None:
            about = printable(message[:_LONGEST_MESSAGE]) if message else self._what
            self._progress.update(
                self._task, completed=_countable(progress), total=_countable(total), description=about
            )

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Clear it for the length of a block."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()


def _countable(number: float | None) -> float | None:
    """A number that the bar can show; None, which changes nothing, for infinity and the like."""
    return number if number is not None and abs(number) < _MOST_SHOWN else None


def run_call(caller: Caller, tool: str, pairs: Sequence[str], key: str | None = None) -> int:
    """Call a tool and print its result; returns the exit code.

    Args:
        caller: who calls, and where.
        tool: the tool's name.
        pairs: its arguments.
        key: the call's idempotency key, for a tool that takes one outside its arguments.
    """
    split(pairs)  # a mistake in them is told before anything is asked

    async def request(client: Client, bar: _Bar) -> int:
        entry, names = await _find(client, "tools", tool)
        KnownNames.of_user().add(caller.endpoint.url, names)
        schema = entry.get("inputSchema")
        arguments = read_arguments(pairs, schema, usage=tool_signature(tool, schema) if schema else "")
        meta: Any = None if key is None else {IDEMPOTENCY_KEY: key}
        try:
            result = await client.call_tool(tool, arguments, progress_callback=bar.report, meta=meta)
        except MCPError as error:
            hint = near(tool, (str(each.get("name")) for each in names))
            if entry or error.error.code != INVALID_PARAMS or not hint:
                raise
            return complain(f"{error} ({error.error.code}){hint}")
        bar.__exit__()
        return show_result(wire(result), caller.output)

    return caller.run(request, tool)


def run_read(caller: Caller, uri: str) -> int:
    """Read a resource and print its contents; returns the exit code."""

    async def request(client: Client, bar: _Bar) -> int:
        try:
            result = await client.read_resource(uri)
        except MCPError as error:
            if error.error.code not in _UNKNOWN_RESOURCE:
                raise
            kinds = {"resources": "uri", "resourceTemplates": "uriTemplate"}
            known = [str(each.get(word)) for kind, word in kinds.items() async for each in pages(client, kind)]
            return complain(f"{error} ({error.error.code}): {uri}{near(uri, known)}")
        bar.__exit__()
        return show_contents(wire(result), caller.output)

    return caller.run(request, uri)


def run_prompt(caller: Caller, name: str, pairs: Sequence[str]) -> int:
    """Get a prompt and print its messages; returns the exit code."""
    split(pairs)

    async def request(client: Client, bar: _Bar) -> int:
        entry, names = await _find(client, "prompts", name)
        if not entry:
            raise WrongArguments(f"there is no prompt {name!r}{near(name, (str(each.get('name')) for each in names))}")
        listed = entry.get("arguments") or []
        schema = {
            "properties": {each["name"]: {"type": "string"} for each in listed},
            "required": [each["name"] for each in listed if each.get("required")],
            "additionalProperties": False,
        }
        arguments = read_arguments(pairs, schema, usage=prompt_signature(name, listed), closed=True)
        result = await client.get_prompt(name, arguments)
        bar.__exit__()
        return show_messages(wire(result), caller.output)

    return caller.run(request, name)


def run_complete(caller: Caller, kind: str, name: str, pairs: Sequence[str]) -> int:
    """Print what a server proposes for an argument, a value on a line; returns the exit code.

    Args:
        caller: who asks, and where.
        kind: `prompt` or `template`.
        name: the prompt's name, or the template's URI.
        pairs: the argument with what is typed of it, and then arguments that are known already.
    """
    if kind not in {"prompt", "template"}:
        raise WrongArguments(f"{kind!r} is neither prompt nor template")
    (argument, typed), *known = [(name, texts[-1]) for name, texts in split(pairs).items()]

    async def request(client: Client, bar: _Bar) -> int:
        ref = PromptReference(name=name) if kind == "prompt" else ResourceTemplateReference(uri=name)
        try:
            result = wire(await client.complete(ref, {"name": argument, "value": typed}, dict(known) or None))
        except MCPError as error:
            if error.error.code != INVALID_PARAMS:
                raise
            return complain(f"{error} ({error.error.code}){await _nearest(client, kind, name, argument)}")
        bar.__exit__()
        if caller.output.as_json:
            return show_result(result, caller.output)
        completion = result.get("completion") or {}
        for value in completion.get("values", ()):
            say(str(value))
        if completion.get("hasMore"):
            say("more values exist: type more of it", err=True)
        return 0

    return caller.run(request, name)


async def _nearest(client: Client, kind: str, name: str, argument: str) -> str:
    """The end of a sentence about a prompt or template, or its argument, that a server does not know."""
    listed, word = ("prompts", "name") if kind == "prompt" else ("resourceTemplates", "uriTemplate")
    entries = {str(each.get(word)): each async for each in pages(client, listed)}
    if name not in entries:
        return f": there is no {kind} {name!r}{near(name, entries)}"
    stated = entries[name].get("arguments") or []
    names = [str(each.get("name")) for each in stated] if kind == "prompt" else _VARIABLE.findall(name)
    return "" if argument in names else f": {name} has no argument {argument!r}{near(argument, names)}"


async def _find(client: Client, kind: str, name: str) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
    """Find an entry of a list; returns it, or nothing, and the entries that were read on the way."""
    read: list[dict[str, Any]] = []
    async for entry in pages(client, kind):
        read.append(entry)
        if entry.get("name") == name:
            return entry, read
    return {}, read
