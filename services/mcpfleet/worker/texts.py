"""Sentences of a worker that models and clients read. Each says what happened, and what to do next where that helps."""

from __future__ import annotations

from typing import Final

from mcpfleet.contracts.manifest import Kind
from mcpfleet.wire.texts import CHECK_FIRST, UNCERTAIN_CALL, WORKER_STOPPED

_NOUNS: Final[dict[Kind, str]] = {"template": "resource", "lister": "list"}
"""How clients know a kind, where they use another word."""

NOT_RUN: Final = "The call waited for a free slot until its time was over. It has not run, and may be called again."
RESULT_NOT_KEPT: Final = (
    "The call has run, and its result could not be kept under its idempotency key. A repeat will hear that the outcome "
    f"is uncertain. {CHECK_FIRST}"
)
TASK_RESULT_NOT_KEPT: Final = f"The task has run, and its result could not be kept. {CHECK_FIRST}"
CANNOT_ANSWER: Final = "The client cannot answer what is asked"
NO_PERMIT: Final = "it could not be decided now whether you may read this: ask again"
SOURCE_AWAY: Final = "The server behind this is not there now. Nothing was run; try again later."
SOURCE_LOST: Final = "The connection to the server that ran this call has ended."
NO_RESOURCE: Final = "Resource not found"


def noun(kind: Kind) -> str:
    """How clients know a kind of handler."""
    return _NOUNS.get(kind, kind)


def failed(kind: Kind, reference: str) -> str:
    """The handler raised an error: its text is in the log, under the reference."""
    return f"The {noun(kind)} failed (reference {reference})."


def broke_output_contract(kind: Kind, reference: str) -> str:
    """The handler returned what its declaration does not allow."""
    what = "its own output schema" if kind == "tool" else "its declaration"
    return f"The {noun(kind)} broke {what} (reference {reference})"


def timed_out(kind: Kind, seconds: float) -> str:
    """The handler took longer than its time."""
    return f"The {noun(kind)} did not finish within {seconds:.3g} s."


def result_too_large(size: int, limit: int) -> str:
    """The result is larger than the worker's limit."""
    return f"The result has {size} bytes, and the limit is {limit} (MCPFLEET_RESULT_LIMIT)."


def tool_changed(error: Exception) -> str:
    """A newer version of the tool cannot go on with the task."""
    return f"The tool has changed since this task was made. {error}"


def question_changed(key: str) -> str:
    """A task's handler asks another question under a key that it has used."""
    return (
        f"The question {key!r} differs from an earlier attempt. A question must say the same in every attempt, or have "
        "another key."
    )


def given_up(reference: str) -> str:
    """The worker leaves before the call has ended."""
    return f"{WORKER_STOPPED} {UNCERTAIN_CALL} (reference {reference})"


def source_lost(kind: Kind, reference: str) -> str:
    """The source's connection ended in a call; a model that called a tool is warned."""
    doubt = f" {UNCERTAIN_CALL}" if kind == "tool" else ""
    return f"{SOURCE_LOST}{doubt} (reference {reference})"
