"""Finds likely effects before a question: a handler that asks runs again from its top, and repeats them (M53).

It reads the source alone and guesses by names, so it may miss an effect, and may name a harmless call. It looks at the
handler's own function and at functions inside of it that it calls. It names, before a question that may follow:

- calls whose name has a verb of change, such as `create_order` or `session.commit`, and SQL that is no `SELECT`;
- awaited calls, and calls of injected dependencies, unless their name begins with a verb of reading, such as `get`;
- files opened to be written, processes, and calls of `requests`, `httpx` and their like that do not read;
- changes of the module's own collections, such as `ORDERS[key] = …` and `SEEN.add(…)`.

It passes over the Context's own methods, what runs in `ctx.step`, and branches that leave the function first.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from mcpfleet.app.handler import Handler
from mcpfleet.app.inspection import ASKING, Body, SourceCode, is_context
from mcpfleet.app.signature import read_signature


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READS: Final = _words("""
    all any ask acquire can check checkpoint compute connect count describe elapsed exists fetch fetchall fetchone
    fetchrow fetchval find first format gather get has head is iter keys length list load lock look lookup make
    monotonic now one open parse peek plan price query quote read receive resolve scalar scalars scan search select
    show sleep status sum tell test time total validate values verify wait
""")
"""First words of names that only look."""
_CHANGES: Final = _words("""
    add append approve archive assign book cancel charge close commit copy create deactivate decrement delete deploy
    disable drop emit enable enqueue execute executemany executescript flush grant increment insert kill makedirs mkdir
    move notify order pay post publish purge push put refund register release remove rename replace reserve revoke
    rmdir rmtree rollback save schedule send set start stop store submit transfer trigger truncate unlink update upload
    upsert withdraw write writelines
""")
"""Words of names that change something; a plain call with one is named."""
_WEAK: Final = _words("add append close copy set start order book replace update push remove insert flush")
"""Words that also name harmless work on a function's own values: they count for awaited calls and dependencies."""
_MUTATES: Final = _words("add append clear discard extend insert pop popitem remove reverse setdefault sort update")
"""Methods that change a collection."""
_EXECUTES: Final = _words("execute executemany executescript")
"""Methods that take SQL."""
_OUTSIDE: Final = frozenset({"requests", "httpx", "httpx2", "aiohttp", "urllib", "subprocess", "shutil", "smtplib"})
"""Modules whose calls reach out of the process."""
_SHORT: Final = 80
"""Characters of a call's text."""
_WRITING: Final = re.compile(r"[rbt]*[wax+][rbt+]*")
"""A mode of `open`."""
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True, slots=True)
class Effect:
    """A likely effect that a question may follow, so that it happens again once the question is answered."""

    file: str
    line: int
    text: str
    """The call as it is written, shortened."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def effects_before_questions(handler: Handler | Callable[..., Any]) -> list[Effect]:
    """Return the likely effects of a handler before its questions and outside of steps, in the order of their lines.

    Args:
        handler: a declaration, for example of `App.handlers`, or a function.

    Returns:
        An empty list for a handler that asks nothing, and for one whose source cannot be read.

    Raises:
        Mistake: a function that cannot be a handler; a declaration was checked before.
    """
    function = handler.function if isinstance(handler, Handler) else handler
    signature = read_signature(function)
    source = SourceCode.of(function)
    if signature.context is None or source is None:
        return []
    walk = _Walk(source, source.contexts(signature.context), frozenset(signature.injected))
    walk.function(source.tree, [])
    return sorted(walk.found.values(), key=lambda each: each.line)


_Pending: TypeAlias = list[ast.AST]
"""Effects that a question may follow."""
_End: TypeAlias = _Pending | None
"""The same at the end of a block; None if the block leaves the function."""


class _Walk:
    """Walks through a function as it runs. Each method takes the pending effects, and returns those after it."""

    def __init__(self, source: SourceCode, contexts: set[str], injected: frozenset[str]) -> None:
        self.found: dict[int, Effect] = {}
        self._source = source
        self._contexts = contexts
        self._injected = injected
        self._inner = {
            node.name: node
            for node in ast.walk(source.tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not source.tree
        }
        self._entered: set[str] = set()
        self._local = _assigned(source.tree)

    def function(self, body: Body, pending: _Pending) -> _Pending:
        """Walk through a function's body."""
        if isinstance(body, ast.Lambda):
            return self._expression(body.body, pending)
        return self._block(body.body, pending) or []

    def _block(self, statements: Sequence[ast.stmt], pending: _Pending) -> _End:
        """Walk through statements; None if the last one leaves the function, so that nothing follows."""
        for statement in statements:
            after = self._statement(statement, pending)
            if after is None:
                return None
            pending = after
        return pending

    def _statement(self, statement: ast.stmt, pending: _Pending) -> _End:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return pending
            case ast.Return() | ast.Raise():
                self._children(statement, pending)
                return None
            case ast.For() | ast.AsyncFor() | ast.While():
                return self._loop(statement, pending)
            case ast.With() | ast.AsyncWith():
                for item in statement.items:
                    pending = self._expression(item.context_expr, pending)
                return self._block(statement.body, pending)
            case ast.If() | ast.Match() | ast.Try() | ast.TryStar():
                return self._branches(statement, pending)
        return self._children(statement, pending)

    def _branches(self, statement: ast.If | ast.Match | ast.Try | ast.TryStar, pending: _Pending) -> _End:
        match statement:
            case ast.If():
                pending = self._expression(statement.test, pending)
                return _either(self._block(statement.body, pending), self._block(statement.orelse, pending))
            case ast.Match():
                pending = self._expression(statement.subject, pending)
                return functools.reduce(
                    _either, [self._block(case.body, pending) for case in statement.cases], cast("_End", pending)
                )
        after = self._block([*statement.body, *statement.orelse], pending)
        for handler in statement.handlers:
            after = _either(after, self._block(handler.body, pending))
        return None if after is None else self._block(statement.finalbody, after)

    def _loop(self, loop: ast.For | ast.AsyncFor | ast.While, pending: _Pending) -> _Pending:
        pending = self._expression(loop.test if isinstance(loop, ast.While) else loop.iter, pending)
        for _ in range(2):  # the end of a turn comes before the beginning of the next
            pending = _either(pending, self._block(loop.body, pending)) or []
        return self._block(loop.orelse, pending) or []

    def _children(self, node: ast.AST, pending: _Pending) -> _Pending:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                pending = self._expression(child, pending)
            elif isinstance(child, ast.keyword | ast.comprehension | ast.FormattedValue):
                pending = self._children(child, pending)
        if isinstance(node, ast.Assign | ast.AugAssign) and self._changes_module(node):
            return [*pending, node]
        return pending

    def _expression(self, node: ast.expr, pending: _Pending, *, is_awaited: bool = False) -> _Pending:
        if isinstance(node, ast.Lambda):
            return pending
        if isinstance(node, ast.Await):
            return self._expression(node.value, pending, is_awaited=True)
        pending = self._children(node, pending)
        if not isinstance(node, ast.Call):
            return pending
        if isinstance(node.func, ast.Attribute) and is_context(node.func.value, self._contexts):
            return self._asked(pending) if node.func.attr in ASKING else pending
        if isinstance(node.func, ast.Name) and node.func.id in self._inner:
            return self._called(node.func.id, pending)
        return [*pending, node] if self._is_effect(node, is_awaited=is_awaited) else pending

    def _asked(self, pending: _Pending) -> _Pending:
        """Report what a question follows."""
        for node in pending:
            line, text = getattr(node, "lineno", 0), ast.unparse(node)
            short = text if len(text) <= _SHORT else text[:_SHORT] + "…"
            self.found[id(node)] = Effect(self._source.file, line, short)
        return pending  # a later question repeats them once more

    def _called(self, name: str, pending: _Pending) -> _Pending:
        """Walk through a function of the handler's own that it calls."""
        if name in self._entered:
            return pending
        self._entered.add(name)
        try:
            return self.function(self._inner[name], pending)
        finally:
            self._entered.discard(name)

    # -- guesses ------------------------------------------------------------------------------------------------------

    def _is_effect(self, call: ast.Call, *, is_awaited: bool) -> bool:
        *owners, name = _path(call.func) or [""]
        words = [word.lower() for word in _WORD.findall(name)]
        if not words:
            return False
        if name in ("open", "open_file"):
            return _writes(call.args[:2] if owners else call.args[1:2], call.keywords)
        if name in _EXECUTES:
            return not _is_select(call)
        if is_awaited or (owners and (owners[0] in self._injected or owners[0] in _OUTSIDE)):
            return words[0] not in _READS
        if owners and name in _MUTATES:
            return self._is_of_module(owners[0])
        return any(word in _CHANGES and word not in _WEAK for word in words)

    def _changes_module(self, node: ast.Assign | ast.AugAssign) -> bool:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(
            isinstance(target, ast.Subscript) and bool(path := _path(target.value)) and self._is_of_module(path[0])
            for target in targets
        )

    def _is_of_module(self, name: str) -> bool:
        return name not in self._local and isinstance(self._source.names.get(name), dict | list | set)


def _either(first: _End, second: _End) -> _End:
    """Join the ends of two branches; a branch that left the function has none."""
    if first is None or second is None:
        return second if first is None else first
    return [*first, *(node for node in second if all(node is not other for other in first))]


def _path(node: ast.expr) -> list[str]:
    """Return the names of `a.b.c`; of a call's result those of the call: `a.b().c` is a, b, c."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*_path(node.value), node.attr]
    return _path(node.func) if isinstance(node, ast.Call) else []


def _assigned(tree: Body) -> set[str]:
    """Return the names that a function binds itself, its parameters among them."""
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bound | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _writes(arguments: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    """Return whether one of the arguments is a mode in which `open` changes a file."""
    given = [*arguments, *(keyword.value for keyword in keywords if keyword.arg == "mode")]
    return any(isinstance(each, ast.Constant) and _WRITING.fullmatch(str(each.value)) for each in given)


def _is_select(call: ast.Call) -> bool:
    """Return whether a call's first text is SQL that only reads."""
    for text in _texts(call.args[:1]):
        return text.lstrip().lower().startswith(("select", "with", "pragma", "show", "explain"))
    return any("select" in ast.unparse(argument) for argument in call.args[:1])


def _texts(nodes: Sequence[ast.expr]) -> Iterator[str]:
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value
