"""`mcpfleet tasks start`, `get`, `answer`, `cancel` and `watch`: a client's commands on its tasks, over MCP."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio

from mcpfleet.cli.ask import Answerer, GivenAnswers, MissingAnswer, Terminal, about_field
from mcpfleet.cli.known_names import KnownNames
from mcpfleet.cli.results import Output, complain, say, show_result
from mcpfleet.cli.signatures import tool_signature
from mcpfleet.cli.task_client import NoResult, TaskClient
from mcpfleet.cli.typed_arguments import WrongArguments, near, parameters, read_arguments, split
from mcpfleet.contracts.tasks import Status
from mcpfleet.process.errors import ConfigurationError, leaves
from mcpfleet.wire.parameter_headers import headers_of
from mcpfleet.wire.protocol import IDEMPOTENCY_KEY

_Work: TypeAlias = Callable[[TaskClient], Awaitable[int]]
_ELICITATION = "elicitation/create"
_INPUT_REQUIRED = "input_required"
"""The type of a result that asks its caller."""


@dataclass(frozen=True)
class TaskCaller:
    """Somebody at an endpoint whose tasks these are, and how they read."""

    url: str
    token: str | None
    timeout: float
    """Seconds for each answer of the server."""
    output: Output = Output()  # noqa: RUF009  # it is frozen

    def run(self, work: _Work) -> int:
        """Do something with a client; returns the exit code. Raises ConfigurationError for what was given wrong."""

        async def whole() -> int:
            async with TaskClient(self.url, timeout=self.timeout, token=self.token) as client:
                return await work(client)

        try:
            return anyio.run(whole)
        except (NoResult, BaseExceptionGroup) as error:
            cause = leaves(error)[0]
            if isinstance(cause, ConfigurationError):
                raise cause from None
            if not isinstance(cause, NoResult):
                raise
            return complain(cause)


def run_start(owner: TaskCaller, tool: str, pairs: Sequence[str], key: str | None) -> int:
    """Call a tool as a task, and print the task's id; returns the exit code."""
    split(pairs)

    async def start(client: TaskClient) -> int:
        entry, names = await client.tool(tool)
        schema = entry.get("inputSchema")
        arguments = read_arguments(pairs, schema, usage=tool_signature(tool, schema) if schema else "")
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if key is not None:
            params["_meta"] = {IDEMPOTENCY_KEY: key}
        try:
            headers = headers_of(schema, arguments)
        except ValueError as error:
            raise NoResult(f"the tool {tool!r} cannot be called over HTTP: {error}") from None
        try:
            result = await client.post("tools/call", tool, params, headers)
        except NoResult as error:
            raise NoResult(f"{error}{'' if entry else near(tool, names)}") from None
        if entry:
            KnownNames.of_user().add(client.url, [entry])
        if "taskId" in result:
            say(json.dumps(result, ensure_ascii=False) if owner.output.as_json else str(result["taskId"]))
            return 0
        if result.get("resultType") == _INPUT_REQUIRED:
            asked = ", ".join(result.get("inputRequests") or {}) or "something"
            raise NoResult(f"{tool} made no task: the call asks for {asked}; use `mcpfleet call`, which answers")
        say(f"{tool} made no task: this is the call's result", err=True)
        return show_result(result, owner.output)

    return owner.run(start)


def run_get(owner: TaskCaller, task: str) -> int:
    """Show a task; returns the exit code."""

    async def get(client: TaskClient) -> int:
        result = await client.ask("tasks/get", task)
        if owner.output.as_json:
            return _as_json(result)
        show_state(result, client.url)
        return show_end(result, owner.output)

    return owner.run(get)


def run_answer(owner: TaskCaller, task: str, key: str, pairs: Sequence[str], *, declines: bool) -> int:
    """Answer or decline one question of a task, by its key; returns the exit code.

    Without fields, a person at a terminal is asked for them.
    """
    split(pairs)

    async def answer(client: TaskClient) -> int:
        state = await client.ask("tasks/get", task)
        questions = state.get("inputRequests") or {}
        if key not in questions:
            if not questions:
                raise NoResult(f"the task waits for no answer: it is {state.get('status')}")
            waits = f"it waits for {', '.join(questions)}"
            raise WrongArguments(f"the task has no question {key!r}: {waits}{near(key, questions)}")
        given = {"action": "decline"} if declines else await _read_answer(client.url, task, key, questions[key], pairs)
        await client.ask("tasks/update", task, inputResponses={key: given})
        return _tell(await client.ask("tasks/get", task), client.url, owner.output)

    return owner.run(answer)


async def _read_answer(url: str, task: str, key: str, request: Mapping[str, Any], pairs: Sequence[str]) -> Any:
    """Read an answer by the question's own schema."""
    question = request.get("params") or {}
    if request.get("method") != _ELICITATION:
        return read_arguments(pairs, {})
    terminal = Terminal.here()
    if not pairs and terminal is not None:
        return await Answerer(GivenAnswers(), terminal).answer(key, question)
    if question.get("mode") == "url":
        if pairs:
            raise WrongArguments(f"{key} asks to open a page, and takes no fields")
        return {"action": "accept"}
    schema = question.get("requestedSchema")
    content = read_arguments(pairs, schema, usage=_ready(url, task, key, question), closed=True)
    return {"action": "accept", "content": content}


def run_cancel(owner: TaskCaller, task: str) -> int:
    """Cancel a task; returns the exit code, which says whether the server took the request, not how the task ended."""

    async def cancel(client: TaskClient) -> int:
        await client.ask("tasks/cancel", task)
        return _tell(await client.ask("tasks/get", task), client.url, owner.output)

    return owner.run(cancel)


def run_watch(owner: TaskCaller, task: str, answers: Sequence[str]) -> int:
    """Show a task until it has ended, and answer what a person or `--answer` can; returns the exit code."""
    given = GivenAnswers(answers)
    answerer = Answerer(given, None if owner.output.as_json else Terminal.here())

    async def watch(client: TaskClient) -> int:
        def show(state: dict[str, Any]) -> None:
            if not owner.output.as_json:
                show_state(state, client.url)

        async def answer(key: str, request: Mapping[str, Any]) -> None:
            if request.get("method") != _ELICITATION:
                return
            try:
                said = await answerer.answer(key, request.get("params") or {})
            except MissingAnswer:
                return  # the command that answers it was shown
            await client.ask("tasks/update", task, inputResponses={key: said})

        end = await client.watch(task, show, answer)
        return _as_json(end) if owner.output.as_json else show_end(end, owner.output)

    return owner.run(watch)


def failed(result: Mapping[str, Any]) -> bool:
    """Whether a task has ended without a good result."""
    is_error = bool((result.get("result") or {}).get("isError"))
    return result.get("status") in {Status.FAILED, Status.CANCELLED} or is_error


def show_state(result: Mapping[str, Any], url: str) -> None:
    """Print a task's state on a line, and below it the questions that it waits for, each with the command that answers.

    Args:
        result: what `tasks/get` returned.
        url: the endpoint, for that command.
    """
    questions: Mapping[str, Any] = result.get("inputRequests") or {}
    words = [str(result.get("lastUpdatedAt", "")), str(result.get("status")), result.get("statusMessage") or ""]
    if questions:
        words.append(f"waits for: {', '.join(questions)}")
    say(" ".join(word for word in words if word))
    for key, request in questions.items():
        for line in _about_question(url, str(result.get("taskId", "TASK")), key, request):
            say(f"  {line}")


def show_end(result: Mapping[str, Any], output: Output) -> int:
    """Print a task's result or error as a call's, if it has one; returns the exit code."""
    if "error" in result:
        error = result["error"]
        complain(f"{error.get('message')} ({error.get('code')})")
    elif "result" in result:
        show_result(result["result"], output)
    return 1 if failed(result) else 0


def _tell(result: dict[str, Any], url: str, output: Output) -> int:
    if output.as_json:
        say(json.dumps(result, ensure_ascii=False))
    else:
        show_state(result, url)
    return 0


def _as_json(result: dict[str, Any]) -> int:
    say(json.dumps(result, ensure_ascii=False))
    return 1 if failed(result) else 0


def _about_question(url: str, task: str, key: str, request: Mapping[str, Any]) -> list[str]:
    question = request.get("params") or {}
    if request.get("method") != _ELICITATION:
        asked = json.dumps(question, ensure_ascii=False)
        return [f"{key}: {request.get('method')} {asked}", f"answer: {_ready(url, task, key, {})} MEMBER=VALUE"]
    lines = [f"{key}: {question.get('message', '')}"]
    if question.get("mode") == "url":
        lines.append(f"  page: {question.get('url')}")
    for field in parameters(question.get("requestedSchema")):
        lines += [f"  {line}" for line in about_field(field)]
    return [*lines, f"answer: {_ready(url, task, key, question)}", f"or:     {_ready(url, task, key, {})} --decline"]


def _ready(url: str, task: str, key: str, question: Mapping[str, Any]) -> str:
    """The command that answers a question; its values are to be filled in."""
    command = shlex.join(["mcpfleet", "tasks", "answer", url, task, key])
    fields = parameters(question.get("requestedSchema"))
    wanted = [field for field in fields if field.is_required or len(fields) == 1]
    return " ".join([command, *(f"{shlex.quote(field.name)}=…" for field in wanted)])
