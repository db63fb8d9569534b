"""Answers what a server asks its caller: by `--answer`, or in the terminal, field by field."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import typer

from mcpfleet.cli.results import harmless
from mcpfleet.cli.typed_arguments import TypedArgument, WrongArguments, near, parameters, split
from mcpfleet.process.errors import ConfigurationError

ACTIONS: Final = ("accept", "decline", "cancel")
"""The actions that a caller may take on a question."""
_REFUSALS: Final = {"/decline": "decline", "/cancel": "cancel"}
"""A person types one of these instead of a field's value, to refuse the whole question."""
_LONGEST_LINE: Final = 64 * 1024
"""Bytes that are read of one line."""
Answer: TypeAlias = dict[str, Any]
"""An answer to a question, as it stands on the wire: `action`, and for an accepted form, `content`."""


class MissingAnswer(ConfigurationError):
    """Raised when a question needs an answer that was not given, and no terminal is there to ask for it."""


class _Refused(Exception):
    """Raised when a person refuses a question; has the action."""

    def __init__(self, action: str) -> None:
        super().__init__(action)
        self.action = action


class GivenAnswers:
    """The answers of `--answer`, for all questions of a call.

    `FIELD=VALUE` is for the field of that name in each form, `QUESTION.FIELD=VALUE` for that of one question, by its
    key. `QUESTION=accept`, `decline` or `cancel` is for a whole question, and `*` stands for every question.
    """

    def __init__(self, pairs: Iterable[str] = ()) -> None:
        """Take what was given; raises WrongArguments where it is no pair."""
        try:
            self._texts = split(pairs)
        except WrongArguments as error:
            raise WrongArguments(*(f"--answer {problem}" for problem in error.problems)) from None
        self._used: set[str] = set()

    def of_field(self, question: str, field: str) -> list[str] | None:
        """Return the texts that were given for a field; None if none were."""
        for name in (f"{question}.{field}", field):
            if name in self._texts:
                self._used.add(name)
                return self._texts[name]
        return None

    def of_question(self, question: str, fields: Iterable[str] = ()) -> str | None:
        """The action that was given for a whole question; None if none was.

        A field's name means the field, even if the question has the same key.
        """
        for name in (question, "*"):
            text = self._texts.get(name, [""])[-1]
            if name not in fields and text in ACTIONS:
                self._used.add(name)
                return text
        return None

    def unused(self) -> list[str]:
        """The names for which no question asked."""
        return [name for name in self._texts if name not in self._used]


class Terminal:
    """The terminal of a person: questions stand on standard error, and answers come from standard input."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()

    @classmethod
    def here(cls) -> Terminal | None:
        """The terminal of this process; None where it has none."""
        return cls() if sys.stdin.isatty() and sys.stderr.isatty() else None

    def say(self, text: str) -> None:
        """Print a line."""
        typer.echo(harmless(text), err=True)

    async def line(self, prompt: str) -> str | None:
        """Ask for a line; None at the end of the input (^D)."""
        typer.echo(harmless(prompt), err=True, nl=False)
        # A terminal gives a whole line to one read. No thread waits for it, so ^C and a cancel end the wait.
        await anyio.wait_readable(self._input)
        line = os.read(self._input, _LONGEST_LINE)
        if not line:
            typer.echo(err=True)
            return None
        return line.decode(errors="replace").strip()


class Answerer:
    """Answers a server's questions, one after another."""

    def __init__(
        self,
        answers: GivenAnswers,
        terminal: Terminal | None = None,
        aside: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        """Take what answers.

        Args:
            answers: those that were given beforehand; they come first.
            terminal: asks for all others; None where nobody can be asked.
            aside: clears the terminal of other output while a person is asked.
        """
        self.answers = answers
        self.terminal = terminal
        self._aside = aside
        self._turn = anyio.Lock()

    async def answer(self, key: str, question: Mapping[str, Any]) -> Answer:
        """Answer one question.

        Args:
            key: names the question.
            question: the parameters of its `elicitation/create`.

        Raises:
            MissingAnswer: an answer is missing, and there is no terminal.
            WrongArguments: an answer that was given does not fit.
        """
        async with self._turn:
            try:
                if question.get("mode") == "url":
                    return {"action": await self._visit(key, question)}
                return await self._fill_in(key, question)
            except _Refused as refused:
                return {"action": refused.action}

    async def _fill_in(self, key: str, question: Mapping[str, Any]) -> Answer:
        fields = parameters(question.get("requestedSchema"))
        action = self.answers.of_question(key, [field.name for field in fields])
        if action in {"decline", "cancel"}:
            return {"action": action}
        content = self._given(key, fields)
        missing = [field for field in fields if field.name not in content]
        if self.terminal is not None and action is None:
            with self._aside():
                await self._ask(self.terminal, question, fields, missing, content)
            return {"action": "accept", "content": content}
        defaults = {field.name: field.schema["default"] for field in missing if field.has_default}
        lacking = [field for field in missing if field.is_required and not field.has_default]
        if lacking or not (action or content):
            raise MissingAnswer(_what_is_missing(key, question, lacking or missing) + self._unmatched(fields))
        return {"action": "accept", "content": {**defaults, **content}}

    def _unmatched(self, fields: Sequence[TypedArgument]) -> str:
        """The end of a sentence that names the answers for no field of a question; empty where there are none."""
        names = [field.name for field in fields]
        wrong = [name for name in self.answers.unused() if "." not in name]
        return "".join(f"; it has no field {name!r}{near(name, names)}" for name in wrong)

    def _given(self, key: str, fields: Sequence[TypedArgument]) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for field in fields:
            texts = self.answers.of_field(key, field.name)
            if texts is not None:
                try:
                    content[field.name] = field.read(texts)
                except ValueError as error:
                    raise WrongArguments(f"--answer {field.name}: {error}") from None
        return content

    async def _ask(
        self,
        terminal: Terminal,
        question: Mapping[str, Any],
        fields: Sequence[TypedArgument],
        missing: Sequence[TypedArgument],
        content: dict[str, Any],
    ) -> None:
        terminal.say(str(question.get("message", "")))
        if not fields:
            await _confirm(terminal)
            return
        if missing:
            terminal.say("  (/decline or /cancel instead of a value refuses to answer)")
        for field in missing:
            for line in about_field(field):
                terminal.say(f"  {line}")
            value = await _ask_field(terminal, field)
            if value is not _LEFT_OUT:
                content[field.name] = value

    async def _visit(self, key: str, question: Mapping[str, Any]) -> str:
        """Have a person open a page; returns the action."""
        action = self.answers.of_question(key)
        if action is not None:
            return action
        url = str(question.get("url", ""))
        if self.terminal is None:
            raise MissingAnswer(_what_is_missing(key, question, []))
        with self._aside():
            self.terminal.say(str(question.get("message", "")))
            self.terminal.say(f"  page: {url}")
            self.terminal.say(f"  site: {urlsplit(url).hostname or 'unknown'}")
            while True:
                said = await self.terminal.line("  open it? [y]es, [d]one it by hand, [n]o, [c]ancel: ")
                match (said or "c")[:1].casefold():
                    case "y" if urlsplit(url).scheme in {"http", "https"}:
                        await anyio.to_thread.run_sync(webbrowser.open, url)
                        return "accept"
                    case "y":
                        self.terminal.say("  this is not a page of the web: open it by hand")
                    case "d":
                        return "accept"
                    case "n":
                        return "decline"
                    case "c":
                        return "cancel"


_LEFT_OUT: Final = object()
"""Stands for no value of an optional field."""


async def _confirm(terminal: Terminal) -> None:
    """Have a person accept a question without fields; raises _Refused."""
    while True:
        said = await terminal.line("  accept? [y]es, [n]o, [c]ancel: ")
        match (said or "c")[:1].casefold():
            case "y":
                return
            case "n":
                raise _Refused("decline")
            case "c":
                raise _Refused("cancel")


async def _ask_field(terminal: Terminal, field: TypedArgument) -> Any:
    """Ask for a field until its value fits; `_LEFT_OUT` for an optional one without a value."""
    default = f" [{_shown(field, field.schema['default'])}]" if field.has_default else ""
    while True:
        said = await terminal.line(f"  {field.name}{default}: ")
        if said is None or said in _REFUSALS:
            raise _Refused(_REFUSALS.get(said or "", "cancel"))
        if not said and (field.has_default or not field.is_required):
            return field.schema["default"] if field.has_default else _LEFT_OUT
        if not said:
            terminal.say(f"  {field.name} is required")
            continue
        try:
            return field.read(_typed(field, said))
        except ValueError as error:
            terminal.say(f"  {field.name} {error}")


def _typed(field: TypedArgument, said: str) -> list[str]:
    """Return the texts typed for a field: choices may be typed by number, and the items of a list with commas."""
    texts = [said]
    if "array" in field.kinds and not said.startswith(("[", "@")):
        texts = [part.strip() for part in said.split(",")]
    choices = field.choices
    known = {str(choice.value) for choice in choices}
    numbered = {str(number): choice.value for number, choice in enumerate(choices, 1)}
    return [
        json.dumps(numbered[text]) if text in numbered and text not in known else text for text in texts
    ]  # fmt: skip


def _shown(field: TypedArgument, value: Any) -> str:
    titles = {str(choice.value): choice.title for choice in field.choices}
    if isinstance(value, list):
        return ", ".join(titles.get(str(each), str(each)) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return titles.get(str(value), str(value))


def about_field(field: TypedArgument) -> list[str]:
    """Lines that describe a field: its name, title, type and rules, its description, and its choices by number."""
    words = [field.words, "required" if field.is_required else "optional", *field.rules]
    title = f": {field.title}" if field.title not in {field.name, field.name.replace("_", " ").title()} else ""
    lines = [f"{field.name}{title} ({', '.join(words)})"]
    if field.description:
        lines.append(f"  {field.description}")
    lines += [f"  {number}  {choice.title}" for number, choice in enumerate(field.choices, 1)]
    return lines


def _said_of(field: TypedArgument) -> str:
    values = ", ".join(str(choice.value) for choice in field.choices)
    return ", ".join([values or field.words, "required" if field.is_required else "optional", *field.rules])


def _what_is_missing(key: str, question: Mapping[str, Any], fields: Sequence[TypedArgument]) -> str:
    """Say which answers a question needs, for somebody without a terminal."""
    asked = f"the server asks {str(question.get('message', ''))!r}, and no terminal is here to ask: "
    if question.get("mode") == "url":
        return f"{asked}open {question.get('url')} and give --answer {key}=accept, or --answer {key}=decline"
    wanted = [f"--answer {field.name}=… ({_said_of(field)})" for field in fields]
    return f"{asked}give {' '.join(wanted) or f'--answer {key}=accept'}, or --answer {key}=decline"
