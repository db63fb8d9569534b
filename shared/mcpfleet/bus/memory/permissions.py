"""The permissions of users on the in-memory switch: NATS's rules over subjects with wildcards."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_KNOWN: Final = {"publish": {"allow"}, "subscribe": {"allow"}, "allow_responses": {"max", "expires"}}
"""The parts of permissions that the switch knows; it refuses others."""

Tokens = tuple[str, ...]
"""A subject or a pattern, cut at its dots."""


def tokens_of(subject: str) -> Tokens:
    """Cut a subject or a pattern at its dots."""
    return tuple(subject.split("."))


def matches(pattern: Sequence[str], subject: Sequence[str]) -> bool:
    """Return whether a pattern hears a subject, or all subjects of another pattern."""
    for position, part in enumerate(pattern):
        if part == ">":
            return position < len(subject)
        if position == len(subject) or subject[position] == ">" or part not in ("*", subject[position]):
            return False
    return len(pattern) == len(subject)


@dataclass(frozen=True, slots=True)
class UserPermissions:
    """The permissions of one user."""

    publish: tuple[Tokens, ...]
    subscribe: tuple[Tokens, ...]
    answers: int
    """How often a receiver may answer a question."""
    answers_within: float
    """Seconds within which it may answer."""

    @classmethod
    def read(cls, permissions: Mapping[str, Any]) -> UserPermissions:
        """Read the permissions of a user from the form of NATS's configuration: lists of allowed subjects.

        Raises:
            ValueError: they have a part that the switch does not know.
        """
        for name, rules in permissions.items():
            if not rules.keys() <= _KNOWN.get(name, set()):
                raise ValueError(f"the switch knows no permissions of the form {name}: {', '.join(rules)}")
        responses = permissions.get("allow_responses", {"max": 0, "expires": "0s"})
        return cls(
            publish=tuple(map(tokens_of, permissions["publish"]["allow"])),
            subscribe=tuple(map(tokens_of, permissions["subscribe"]["allow"])),
            answers=responses["max"],
            answers_within=float(responses["expires"].removesuffix("s")),
        )

    def may_publish(self, subject: Tokens) -> bool:
        """Return whether the user may send to a subject."""
        return any(matches(allowed, subject) for allowed in self.publish)

    def may_subscribe(self, pattern: Tokens) -> bool:
        """Return whether the user may hear all subjects of a pattern."""
        return any(matches(allowed, pattern) for allowed in self.subscribe)


class ReplyPermits:
    """The subjects that one link may answer to, since it was asked: each for a while, and so many times."""

    def __init__(self, permissions: UserPermissions) -> None:
        self._permissions = permissions
        self._granted: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def grant(self, reply: str) -> None:
        """Let the link answer a question that reaches it now."""
        if not self._permissions.answers:
            return
        now = time.monotonic()
        while self._granted and next(iter(self._granted.values()))[0] <= now:
            self._granted.popitem(last=False)
        self._granted.pop(reply, None)
        self._granted[reply] = (now + self._permissions.answers_within, self._permissions.answers)

    def take(self, subject: str) -> bool:
        """Return whether the link may answer to a subject now, and count the answer."""
        until, left = self._granted.pop(subject, (0.0, 0))
        if until <= time.monotonic():
            return False
        if left > 1:
            self._granted[subject] = (until, left - 1)
        return True
