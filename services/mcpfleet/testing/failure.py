"""Raises what failed in a test's block by itself, with the fleet's log below it.

A client inside of the block has task groups, which wrap an error of the block in groups. A test's reader looks for the
assertion, and a test's `pytest.raises` for its class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEWEST: Final = 200
"""Lines of the log that are shown."""


def alone(error: BaseException) -> BaseException:
    """Return the one error in groups of groups; a group of several errors as it is."""
    found = error
    while isinstance(found, BaseExceptionGroup) and len(found.exceptions) == 1:
        found = found.exceptions[0]
    return error if isinstance(found, BaseExceptionGroup) else found


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise the one error in the groups that leave a block; any other error passes as it is."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise_alone(group)
        raise


def raise_alone(group: BaseException) -> None:
    """Raise the one error in groups, with its own cause and context; return if there are several, or no group."""
    error = alone(group)
    if error is group:
        return
    cause, context, is_hidden = error.__cause__, error.__context__, error.__suppress_context__
    try:
        raise error
    finally:
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, is_hidden


def note_log(error: BaseException, log: str) -> None:
    """Add the newest lines of a fleet's log to an error, which shows them below itself."""
    lines = log.splitlines()
    left_out = f" (the first {len(lines) - _NEWEST} lines are left out)" if len(lines) > _NEWEST else ""
    error.add_note("\n".join([f"the fleet's log{left_out}:", *lines[-_NEWEST:]]))
