"""A notification of an application's own extension: the object by which handlers tell of a key (X46)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from mcpfleet.app.declaration import check_only_for, check_scopes
from mcpfleet.app.errors import AskError
from mcpfleet.app.extension_names import check_filter, check_notification
from mcpfleet.contracts.hints import LONGEST_KEY, OwnChange
from mcpfleet.contracts.manifest import Definition


class Notification:
    """A notification that an extension declares: `ctx.tell` takes it.

    Raises:
        Mistake: its name, filter or scopes break a rule.
    """

    def __init__(
        self,
        extension: str,
        name: str,
        field: str,
        *,
        scopes: Collection[str],
        only_for: Collection[str],
        revisions: Collection[str],
        is_added: Callable[[], bool],
    ) -> None:
        check_notification(name)
        check_filter(field)
        check_scopes(scopes)
        check_only_for(only_for)
        self.definition = Definition(
            kind="notification",
            name=name,
            wire={},
            extension=extension,
            filter=field,
            scopes=tuple(dict.fromkeys(scopes)),
            only_for=tuple(sorted(set(only_for))),
            revisions=tuple(sorted(set(revisions))),
        )
        self._is_added = is_added

    @property
    def name(self) -> str:
        """Its method on the wire."""
        return self.definition.name

    @property
    def filter(self) -> str:
        """The field of a listen stream's filter that names keys."""
        return self.definition.filter or ""

    def change(self, key: str) -> OwnChange:
        """Return that a key has changed.

        Raises:
            AskError: the key has another length, or no App has the extension.
        """
        given: object = key
        if not isinstance(given, str) or not 0 < len(given) <= LONGEST_KEY:
            raise AskError(f"a key of {self.name} is a text of 1 to {LONGEST_KEY} characters, not {key!r:.80}")
        if not self._is_added():
            raise AskError(f"nobody hears {self.name}: add its extension {self.definition.extension!r} by `app.add(…)`")
        return OwnChange(self.name, key)
