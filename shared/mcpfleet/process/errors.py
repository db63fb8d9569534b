"""Errors that keep a process from starting, in words that help an operator."""

from __future__ import annotations


class ConfigurationError(Exception):
    """Raised when the configuration keeps a process from starting; each problem names a variable, never a secret's
    value.

    `run` prints each problem as one line and exits with 2.

    Attributes:
        problems: sentences like `MCPFLEET_NATS_URL: …`.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class LoggedFailure(Exception):
    """Raised when a service ends by a failure that it has logged itself; `run` exits with 1, and logs nothing more."""


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors inside of exception groups, in order; an error that is no group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def causes(error: BaseException) -> list[str]:
    """Return an error and its causes, each as `Class: sentence`, the nearest first."""
    told: list[str] = []
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        told.append(f"{type(at).__name__}: {at}".rstrip(": "))
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return told
