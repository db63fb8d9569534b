"""What an application's author raises, and what is raised at an author."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

from mcpfleet.app.site import Site

RESERVED_CODES: Final = range(-32768, -31999)
"""JSON-RPC keeps -32768 to -32000 for itself and for the protocols that are built on it (M24)."""


class ToolError(Exception):
    """Raised by a handler when the model should read why it failed.

    The text becomes a tool result with `isError: true`, word for word; the text of any other exception is kept from
    the client.
    """


class TryAgain(ToolError):
    """Raised by a task's handler whose attempt failed where another may do better; in a call it is a ToolError.

    After the last attempt the text is the task's result. Anything else that a handler raises ends the task at once.

    Attributes:
        after: seconds to wait at least; the pauses grow by themselves.
    """

    def __init__(self, text: str, *, after: float = 0.0) -> None:
        super().__init__(text)
        self.after = after


class Declined(ToolError):
    """Raised by a question that the user declined, or dismissed without a choice (M55).

    A handler that goes on without an answer catches it; otherwise the model reads that there is none.

    Attributes:
        action: "decline", or "cancel" where the user just closed it.
    """

    def __init__(self, message: str, action: Literal["decline", "cancel"]) -> None:
        what = "declined to answer" if action == "decline" else "dismissed the question"
        super().__init__(f"The user {what}: {message}")
        self.action = action


class NotFound(Exception):
    """Raised by a resource's handler when there is nothing under the URI that is read (M42)."""


class AskError(Exception):
    """Raised when a handler asks what it may not, or not so; the text is for the author."""


class QuestionChanged(AskError):
    """Raised when a task asks under a key that has asked something else in an earlier attempt (M70)."""


class ClientLacks(Exception):
    """Raised by a question that the client cannot answer; `ctx.can_ask` tells beforehand.

    Where a handler lets it through, the client is told what it lacks, as the protocol's own error.

    Attributes:
        names: what it lacks, for example `sampling`.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        super().__init__(f"the client cannot answer {', '.join(self.names)}")


class ProtocolError(Exception):
    """Raised by a handler that answers with a JSON-RPC error instead of a result, which the client's code sees.

    Attributes:
        code: an integer outside -32768 to -32000.
        message: one sentence.
        data: any JSON value for `error.data`; left out where it is None.

    Raises:
        ValueError: the code is one of those that JSON-RPC reserves (M24).
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        if code in RESERVED_CODES:
            raise ValueError(f"error code {code} is reserved: an application's are outside -32768 to -32000")
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Problem(NamedTuple):
    """One way in which a value breaks its schema: where, and which rule; never the value."""

    path: str
    """The field, for example `books[0].title`; empty for the whole; `*` stands for a name that the schema lacks."""
    rule: str
    """What must hold, for example `must be integer`."""

    def __str__(self) -> str:
        return f"{self.path}: {self.rule}" if self.path else self.rule


class InvalidArguments(Exception):
    """Raised when the arguments of a call break what the declaration says of them; the handler has not run.

    Its text may be shown to the model: it repeats nothing that the client sent (T16).

    Attributes:
        problems: at least one.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("Invalid arguments: " + "; ".join(map(str, self.problems)))


class OutputError(Exception):
    """Raised when a handler returned what its declaration does not allow (M39); the text is for the operator."""


class ProgressError(ValueError):
    """Raised when a handler reports progress that goes back, or is no finite number (P2)."""


class DeclarationError(Exception):
    """Raised when a declaration cannot be served: at import, so that no worker starts with it.

    Attributes:
        site: the function; None where the App itself is declared wrongly.
        parameter: the parameter, where one is to blame.
    """

    def __init__(self, why: str, site: Site | None = None, parameter: str | None = None) -> None:
        where = [str(site)] if site else []
        if parameter is not None:
            where.append(f"parameter {parameter!r}")
        super().__init__(f"{', '.join(where)}: {why}" if where else why)
        self.site = site
        self.parameter = parameter


class Mistake(Exception):
    """Raised by a rule that does not know which function it judges; `App.tool` makes a DeclarationError of it.

    Attributes:
        why: what is wrong, and how to mend it where that is not plain.
        parameter: the parameter to blame, where there is one.
    """

    def __init__(self, why: str, parameter: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.parameter = parameter


class LoadError(Exception):
    """Raised when a target does not lead to an App; the text says what was looked for."""


class DeclarationWarning(UserWarning):
    """Warned of when a declaration is allowed, and probably a mistake."""
