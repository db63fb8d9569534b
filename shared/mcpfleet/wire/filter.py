"""The `notifications` filter: what a listen stream asks for, and the honoured part of it (S5, S7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from mcpfleet.wire.errors import bad_params

ListKind = Literal["tools", "prompts", "resources"]
"""The lists whose changes are told; templates and listers belong to `resources`."""

LIST_FIELDS: Final[Mapping[ListKind, str]] = MappingProxyType(
    {"tools": "toolsListChanged", "prompts": "promptsListChanged", "resources": "resourcesListChanged"}
)
LONGEST_URI: Final = 2_048
"""Characters of a URI that can be read."""
MOST_KEYS: Final = 256
"""Different URIs, or tasks, of one stream (D7, N8)."""


class OwnKeys(NamedTuple):
    """The keys of one notification of an own extension (X46)."""

    field: str
    """The field of the filter."""
    keys: tuple[str, ...]
    """As the client wrote them, each once."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The subjects of a stream."""

    lists: frozenset[ListKind] = frozenset()
    uris: tuple[str, ...] = ()
    """As the client wrote them, each once: they are compared and echoed unchanged."""
    task_ids: tuple[str, ...] = ()
    own: tuple[OwnKeys, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lists or self.uris or self.task_ids or self.own)

    def echo(self) -> dict[str, Any]:
        """Return the filter as an acknowledgment has it: absent parts are not named."""
        found: dict[str, Any] = {field: True for kind, field in LIST_FIELDS.items() if kind in self.lists}
        if self.uris:
            found["resourceSubscriptions"] = list(self.uris)
        if self.task_ids:
            found["taskIds"] = list(self.task_ids)
        found |= {each.field: list(each.keys) for each in self.own}
        return found

    def only_own(self, allowed: Mapping[str, Iterable[str]]) -> tuple[OwnKeys, ...]:
        """Return its keys of own notifications that are among these, by fields."""
        kept = (
            OwnKeys(each.field, tuple(key for key in each.keys if key in set(allowed.get(each.field, ()))))
            for each in self.own
        )
        return tuple(each for each in kept if each.keys)

    def supported(self, capabilities: Mapping[str, Any], *, tasks: bool) -> Filter:
        """Return the part that an endpoint can honour (S7): without kinds of change that its capabilities lack.

        A URI is honoured whether or not anything exists there: it may come, and a hidden one must look the same (T12).
        Later steps ask whether its resource lets the caller read it, and whether the caller has such a task (S21, K16).

        Args:
            capabilities: the capabilities of the endpoint.
            tasks: the endpoint has durable tasks.
        """
        lists = frozenset(kind for kind in self.lists if capabilities.get(kind, {}).get("listChanged"))
        uris = self.uris if capabilities.get("resources", {}).get("subscribe") else ()
        return Filter(lists, uris, self.task_ids if tasks else (), self.own)


def read_filter(value: Any, most: int = MOST_KEYS, own: Iterable[str] = ()) -> Filter:
    """Read the filter of a request: `false` is absence, and unknown fields mean nothing.

    Args:
        value: `params.notifications`.
        most: the most different URIs, the most tasks, and the most keys of an own notification.
        own: the fields of own notifications that exist for the caller; others are unknown.

    Raises:
        Rejection: -32602 for another form, or too many names.
    """
    if not isinstance(value, dict):
        raise bad_params("`notifications` must be an object")
    lists = frozenset(kind for kind, field in LIST_FIELDS.items() if _flag(value, field))
    uris = _texts(value, "resourceSubscriptions", most)
    if any(len(uri) > LONGEST_URI for uri in uris):
        raise bad_params(f"a URI has at most {LONGEST_URI} characters")
    named = [OwnKeys(field, _texts(value, field, most)) for field in own if field in value]
    if any(not 0 < len(key) <= LONGEST_URI for each in named for key in each.keys):
        raise bad_params(f"a key has 1 to {LONGEST_URI} characters")
    return Filter(lists, uris, _texts(value, "taskIds", most), tuple(each for each in named if each.keys))


def _flag(value: dict[str, Any], name: str) -> bool:
    flag = value.get(name, False)
    if not isinstance(flag, bool):
        raise bad_params(f"`{name}` must be true or false")
    return flag


def _texts(value: dict[str, Any], name: str, most: int) -> tuple[str, ...]:
    texts = value.get(name, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise bad_params(f"`{name}` must be an array of strings")
    found = tuple(dict.fromkeys(texts))
    if len(found) > most:
        raise bad_params(f"`{name}` has more than {most} entries")
    return found
