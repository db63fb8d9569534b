"""The errors that an author raises, and those that an author gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from mcpfleet.app.site import Site

RESERVED_CODES: Final = range(-32768, -31999)
"""JSON-RPC reserves -32768 to -32000 for itself and for protocols that build on it (M24)."""


class ToolError(Exception):
    """Raised by a handler so that the model reads why it failed.

    The text becomes a tool result with `isError: true`, word for word. The text of any other exception is hidden from
    the client.
    """


class TryAgain(ToolError):
    """Raised by a task's handler if another attempt may succeed; in a call it is a ToolError.

    After the last attempt the text is the task's result. Any other error of a handler ends the task at once.

    Attributes:
        after: seconds to wait at least; the pauses grow by themselves.
    """

    def __init__(self, text: str, *, after: float = 0.0) -> None:
        super().__init__(text)
        self.after = after


class Declined(ToolError):
    """Raised by a question that the user declined or dismissed (M55).

    A handler that can go on without an answer catches it; otherwise the model reads the text.

    Attributes:
        action: "decline", or "cancel" if the user closed the question.
    """

    def __init__(self, message: str, action: Literal["decline", "cancel"]) -> None:
        what = "declined to answer" if action == "decline" else "dismissed the question"
        super().__init__(f"The user {what}: {message}")
        self.action = action


class NotFound(Exception):
    """Raised by a resource's handler if nothing exists under the URI (M42)."""


class AskError(Exception):
    """Raised when a handler asks a question that it may not ask, or in a wrong form; the text is for the author."""


class TextError(ValueError):
    """Raised by `ctx.t` if a text cannot be filled: a placeholder without a value, or a plural without a number."""


class QuestionChanged(AskError):
    """Raised when a task asks another question under the key of an earlier attempt's question (M70)."""


class ClientLacks(Exception):
    """Raised by a question that the client cannot answer; `ctx.can_ask` tells beforehand.

    If a handler lets it through, the client gets the protocol's own error with the missing capabilities.

    Attributes:
        names: the missing capabilities, for example `sampling`.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        super().__init__(f"the client cannot answer {', '.join(self.names)}")


class ScopeNeeded(Exception):
    """Raised by `ctx.need` where the caller lacks a scope: the call ends refused, and its client may ask for more.

    Attributes:
        scopes: the needed scopes.
    """

    def __init__(self, scopes: Iterable[str]) -> None:
        self.scopes = tuple(dict.fromkeys(scopes))
        super().__init__(f"the caller lacks a scope of {', '.join(self.scopes)}")


class ProtocolError(Exception):
    """Raised by a handler that answers with a JSON-RPC error, which the client's code sees, instead of a result.

    Attributes:
        code: an integer outside -32768 to -32000.
        message: one sentence.
        data: any JSON value for `error.data`; None leaves it out.

    Raises:
        ValueError: JSON-RPC reserves the code (M24).
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if code in RESERVED_CODES:
            raise ValueError(f"error code {code} is reserved: an application's are outside -32768 to -32000")
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Problem(NamedTuple):
    """One way in which a value breaks its schema: the field and the rule, but never the value."""

    path: str
    """The field, for example `books[0].title`; empty for the whole value; `*` stands for a name that the schema
    lacks."""
    rule: str
    """The rule, for example `must be integer`."""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}" if self.path else self.rule


class InvalidArguments(Exception):
    """Raised when a call's arguments break the declaration; the handler has not run.

    A model may read its text, which repeats nothing that the client sent (T16).

    Attributes:
        problems: at least one.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("Invalid arguments: " + "; ".join(map(str, self.problems)))


class NotAccepted(InvalidArguments):
    """Raised when arguments fit the schema but for a `format`, or one of the author's types or validators refuses
    them."""


class NotAwaited(Exception):
    """Raised when a plain function calls an async method of its Context, instead of that of `ctx.sync`."""


class OutputError(Exception):
    """Raised when a handler's result breaks its declaration (M39); the text is for the operator."""


class ProgressError(ValueError):
    """Raised when a handler reports progress that goes back or is not finite (P2)."""


class DeclarationError(Exception):
    """Raised at import when a declaration cannot be served, so no worker starts with it.

    Attributes:
        why: the mistake, and its remedy unless that is plain.
        site: the function; None if the App itself is wrong.
        parameter: the parameter at fault, if there is one.
    """

    def __init__(self, why: str, site: Site | None = None, parameter: str | None = None) -> None:
        where = [str(site)] if site else []
        if parameter is not None:
            where.append(f"parameter {parameter!r}")
        super().__init__(f"{', '.join(where)}: {why}" if where else why)
        self.why = why
        self.site = site
        self.parameter = parameter


class Mistake(Exception):
    """Raised by a rule that does not know its function; `App.tool` makes a DeclarationError of it.

    Attributes:
        why: the mistake, and its remedy unless that is plain.
        parameter: the parameter at fault, if there is one.
    """

    def __init__(self, why: str, parameter: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.parameter = parameter


class LoadError(Exception):
    """Raised when a target does not lead to an App; the text tells where it looked."""


class RunError(Exception):
    """Raised by `App.run` where it cannot run the application; the text says where it can."""


class DeclarationWarning(UserWarning):
    """Warned when a declaration is allowed, but probably a mistake."""
