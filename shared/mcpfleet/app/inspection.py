"""Reads a handler's own code for the questions that it asks, so that its declaration need not repeat them (D16).

It sees calls of the handler's Context in the function itself and in functions and lambdas inside of it. It does not
follow the Context into other functions, and sees nothing where Python has no source, as in an interpreter's own prompt.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final, cast

from mcpfleet.app import question
from mcpfleet.app.declaration import Options
from mcpfleet.app.input import Question
from mcpfleet.app.site import innermost

ASKING: Final = {
    "elicit": "elicitation.form",
    "elicit_url": "elicitation.url",
    "sample": "sampling",
    "roots": "roots",
    "ask": None,
}
"""The methods of a Context that ask, and what each needs; `ask` needs what its questions need."""
_MAKERS: Final[dict[Any, str]] = {
    question.form: "elicitation.form",
    question.url: "elicitation.url",
    question.sample: "sampling",
    question.roots: "roots",
}
_WITH_TOOLS: Final = {"tools", "tool_choice"}
"""Arguments of a sampling question that need `sampling.tools`."""
_LACKS: Final = "ClientLacks"

Body = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The code of one function."""

    tree: Body
    file: str
    names: dict[str, Any]
    """The values of its globals and closure, by name."""

    @classmethod
    def of(cls, handler: Callable[..., Any]) -> SourceCode | None:
        """Return the code of a handler's own function; None where there is no source."""
        function = innermost(handler)
        code = getattr(function, "__code__", None)
        if code is None:
            return None
        try:
            lines, first = inspect.getsourcelines(function)
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError, IndentationError):
            return None  # a lambda in the middle of a call, a file that has changed, or no file at all
        found = [node for node in ast.walk(tree) if isinstance(node, Body)]
        if not found:
            return None
        ast.increment_lineno(tree, first - 1)
        return cls(found[0], code.co_filename, _names(function))

    def value(self, node: ast.expr) -> Any:
        """Return the value of a name, or of an attribute of one, at the module's level; None if it has none."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            return getattr(self.value(node.value), node.attr, None)
        return None

    def contexts(self, context: str) -> set[str]:
        """Return the names by which the code reaches the Context, or its blocking twin."""
        known = {context}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Assign) and is_context(node.value, known):
                known.update(target.id for target in node.targets if isinstance(target, ast.Name))
        return known


def is_context(node: ast.expr, known: set[str]) -> bool:
    """Return whether an expression is the Context, by one of its names, or its `sync`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "sync" and is_context(node.value, known)
    return isinstance(node, ast.Name) and node.id in known


@dataclass(frozen=True, slots=True)
class VisibleQuestions:
    """The questions that a handler's own code shows."""

    asks: frozenset[str] = frozenset()
    may_ask: frozenset[str] = frozenset()
    """Those that it asks only after `ctx.can_ask`, or whose refusal by the client it catches."""


_NONE: Final = VisibleQuestions()


def visible_questions(handler: Callable[..., Any], context: str | None) -> VisibleQuestions:
    """Return the questions that a handler's own code asks of its Context, which is the parameter `context`."""
    if context is None or not _may_ask(getattr(innermost(handler), "__code__", None)):
        return _NONE
    source = SourceCode.of(handler)
    if source is None:
        return _NONE
    known = source.contexts(context)
    calls = {id(node.func): node for node in ast.walk(source.tree) if isinstance(node, ast.Call)}
    needs: set[str] = set()
    guards: set[str] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is not None and _LACKS in ast.unparse(node.type):
            guards.add("")
        if not isinstance(node, ast.Attribute) or not is_context(node.value, known):
            continue
        call = calls.get(id(node))
        if node.attr == "can_ask" and call is not None:
            guards.add(_guarded(call))
        elif node.attr in ASKING:
            needs.update(_needs(node.attr, call, source))
    may_ask = {each for each in needs if any(_covers(guard, each) for guard in guards)}
    return VisibleQuestions(frozenset(needs - may_ask), frozenset(may_ask))


def with_visible_questions(options: Options, handlers: Iterable[tuple[Callable[..., Any], str | None]]) -> Options:
    """Return a declaration's options with the questions that its functions show, where it names them nowhere.

    Args:
        options: as the author wrote them; `asks` and `may_ask` in it stay.
        handlers: the handler and the functions that it depends on, each with the parameter that takes the Context.
    """
    stated = [options.get("asks", ()), options.get("may_ask", ())]
    if any(isinstance(each, str) for each in stated):  # the declaration refuses it
        return options
    seen = [visible_questions(*each) for each in handlers]
    named = {name for names in stated for name in names}
    asks = _unnamed((each for found in seen for each in found.asks), named)
    may_ask = _unnamed((each for found in seen for each in found.may_ask), named) - asks
    if not asks and not may_ask:
        return options
    added = {"asks": {*stated[0], *asks}, "may_ask": {*stated[1], *may_ask}}
    return cast("Options", {**options, **added})


def _unnamed(found: Iterable[str], named: set[str]) -> set[str]:
    return {each for each in found if not any(held == each or held.startswith(f"{each}.") for held in named)}


def _covers(guard: str, need: str) -> bool:
    return guard in ("", need) or need.startswith(f"{guard}.")


def _guarded(call: ast.Call) -> str:
    """Return the question that a call of `can_ask` looks for; an empty text if that is seen only at run time."""
    match call.args:
        case [ast.Constant(value=str(name))]:
            return name
        case _:
            return ""


def _needs(method: str, call: ast.Call | None, source: SourceCode) -> Iterator[str]:
    need = ASKING[method]
    if need is not None:
        yield _sampling(need, call)
        return
    for argument in call.args if call is not None else ():
        if isinstance(argument, ast.Call) and (made := _maker(source.value(argument.func))) is not None:
            yield _sampling(made, argument)
        elif isinstance(given := source.value(argument), Question):
            yield given.needs


def _maker(function: Any) -> str | None:
    return _MAKERS.get(function) if inspect.isfunction(function) else None


def _sampling(need: str, call: ast.Call | None) -> str:
    has_tools = call is not None and any(keyword.arg in _WITH_TOOLS for keyword in call.keywords)
    return "sampling.tools" if need == "sampling" and has_tools else need


def _may_ask(code: CodeType | None) -> bool:
    """Return whether a function's code, or code inside of it, has the name of a method that asks: a quick look."""
    if code is None:
        return False
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return not ASKING.keys().isdisjoint(code.co_names) or any(map(_may_ask, inner))


def _names(function: Callable[..., Any]) -> dict[str, Any]:
    cells = getattr(function, "__closure__", None) or ()
    code: CodeType = function.__code__
    enclosed = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            enclosed[name] = cell.cell_contents
        except ValueError:  # it has no value yet
            continue
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return {**names, **enclosed}
