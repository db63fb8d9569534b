"""The task options of a tool, and the continuation of a call that becomes a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from mcpfleet.app.client import Progress
from mcpfleet.app.errors import Mistake
from mcpfleet.app.input import Asker
from mcpfleet.contracts.manifest import LONGEST_RETENTION, LONGEST_RUN, Tasking

_KEYS: Final = frozenset({"string", "integer"})


@dataclass(frozen=True, slots=True)
class DeferredCall:
    """The continuation of a call as the task that was made of it."""

    asker: Asker
    report: Callable[[Progress], None]
    deadline: float
    """Monotonic seconds at which its run limit ends."""


class TaskMaker(Protocol):
    """Makes a task of a call."""

    @property
    def can(self) -> bool:
        """Whether the client takes a task's handle, and the endpoint has tasks."""

    async def __call__(self) -> DeferredCall:
        """Make the task; from then on the client has its handle.

        Raises:
            ClientLacks: the client takes none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The task options of a tool, checked at its declaration.

    Raises:
        Mistake: a rule below is broken.
    """

    task: Tasking | None = None
    run_limit: float = 3600.0
    retention: float = 3600.0
    idempotency_key: str | Literal[True] | None = None
    """The argument that is the key; True if the caller names it beside the arguments."""
    again_is_safe: bool = False

    def __post_init__(self) -> None:
        if self.task not in (None, "required", "optional"):
            raise Mistake(f'task must be "required", "optional" or None, not {self.task!r}')
        for name, value, most in (
            ("run_limit", self.run_limit, LONGEST_RUN),
            ("retention", self.retention, LONGEST_RETENTION),
        ):
            if not 0 < value <= most:
                raise Mistake(f"{name} must be over 0 and up to {most:.0f} seconds, not {value}")

    def check(self, schema: dict[str, Any]) -> None:
        """Check them by the schema of the tool's arguments.

        Raises:
            Mistake: they do not fit.
        """
        if self.idempotency_key is None or self.idempotency_key is True:
            return
        stated = schema.get("properties", {}).get(self.idempotency_key)
        if not isinstance(stated, dict) or stated.get("type") not in _KEYS:
            raise Mistake("idempotency_key must name an argument that is a text or an integer", self.idempotency_key)

    def members(self) -> dict[str, Any]:
        """Return their members of the definition."""
        return {
            "task": self.task,
            "run_limit": self.run_limit,
            "retention": self.retention,
            "idempotency_key": None if self.idempotency_key is True else self.idempotency_key,
            "idempotency_meta": self.idempotency_key is True,
            "again_is_safe": self.again_is_safe,
        }
