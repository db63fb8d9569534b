"""Sentences that models and people at clients read. Each says what happened, and what to do next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

CHECK_FIRST: Final = "Check with a read-only tool before you call it again."
UNCERTAIN_CALL: Final = (
    f"The outcome is uncertain: the call may have had its effect, in whole or in part. {CHECK_FIRST}"
)
UNCERTAIN_METHOD: Final = (
    "The outcome is uncertain: the method may have had its effect, in whole or in part. Look first, and call it again "
    "only if it did not."
)

# Why the outcome of a call is uncertain.
UNACCEPTED: Final = "No worker confirmed this call, and one may still have run it."
WORKER_LOST: Final = "The worker that ran this call is no longer heard from."
RESULT_LOST: Final = "This call has ended, and its result was lost on the way."
EDGE_STOPPED: Final = "The server that waited for this call had to stop."
WORKER_STOPPED: Final = "The worker that ran this call had to stop before it was finished."
OVERDUE: Final = "This call was not finished in time. It was told to stop."

# Questions to the client.
NEEDS_SESSION: Final = (
    "This needs input from the user, which this protocol revision allows only in a session. Connect with a session, or "
    "with protocol revision 2026-07-28."
)
CANNOT_ANSWER: Final = "This needs input that the client did not declare it can give: "
CANNOT_BE_ASKED: Final = "Clients of this protocol revision cannot be asked for this: "
TOO_MANY_ROUNDS: Final = "The tool asked for input more often than a client answers. Nothing more was run."
NO_ANSWER: Final = "The client did not give the input in time."
ANSWERED_WITH_ERROR: Final = "The client answered the request for input with an error"
ASKER_STOPPED: Final = "The server that asked the client had to stop."
NOTHING_MORE_RUN: Final = "Nothing more was run."
INTERRUPTED: Final = (
    f"The call stopped after it asked for input. Earlier side effects may have happened, and nothing more was run. "
    f"{CHECK_FIRST}"
)

# Tasks and idempotency keys.
NO_TASKS: Final = "Each call of this tool is a durable task, which clients of this protocol revision cannot take."
UNCERTAIN_TASK: Final = (
    f"The task may have been made: it is unknown, and it may run, in whole or in part. {CHECK_FIRST}"
)
KEY_MISMATCH: Final = "This idempotency key was used before with other arguments: nothing was run. Use a new key."
KEY_UNCERTAIN: Final = (
    "A call with this idempotency key was begun before, and it is unknown whether it had its effect: nothing was run "
    "now. Check with a read-only tool before you call with a new key."
)
KEY_TOO_LARGE: Final = (
    "A call with this idempotency key has ended, and its result was too large to keep: nothing was run."
)


def needs_scopes(scopes: Iterable[str]) -> str:
    """The caller lacks a scope, and nothing was done (X55)."""
    return f"This needs the scopes {', '.join(scopes)}, and the caller lacks one of them. Nothing was done."
