"""A notification of an application's own extension: the object by which handlers tell of a key (X46)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, TypeVar

import anyio

from mcpfleet.app.declaration import check_only_for, check_scopes
from mcpfleet.app.errors import AskError, DeclarationError, Mistake
from mcpfleet.app.extension_names import check_filter, check_notification
from mcpfleet.app.permit import Caller, Permit, PermitFailed
from mcpfleet.app.site import Site
from mcpfleet.contracts.hints import LONGEST_KEY, OwnChange
from mcpfleet.contracts.manifest import Definition

KeyPermit: TypeAlias = Callable[[Caller, list[str]], Any]
"""Takes a caller and keys; returns a list with True for each of which it may hear, else False."""
Permitting = TypeVar("Permitting", bound=KeyPermit)


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
        changed: Callable[[], None],
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
        self._changed = changed
        self._permit: Permit | None = None

    @property
    def name(self) -> str:
        """Its method on the wire."""
        return self.definition.name

    @property
    def filter(self) -> str:
        """The field of a listen stream's filter that names keys."""
        return self.definition.filter or ""

    def permit(self, function: Permitting) -> Permitting:
        """Declare a function that decides who may hear of which keys; used as `@changed.permit`.

        It gets a caller and a list of keys, and returns a list with True or False for each. A refused key is left out
        of a stream's acknowledgment. A decision holds for a minute, and is asked for again before a change is told.

        Raises:
            DeclarationError: the function takes other parameters, or there is a permit already.
        """
        if self._permit is not None:
            raise DeclarationError(f"{self.name!r} has a permit already: {self._permit.site}", Site.of(function))
        try:
            self._permit = Permit(function, asks="str")
        except Mistake as mistake:
            raise DeclarationError(mistake.why, Site.of(function)) from mistake.__cause__
        # A new one, since the text and digest of the old one are cached.
        self.definition = Definition(**self.definition.model_dump() | {"permit": True})
        self._changed()
        return function

    async def permits(
        self, caller: Caller, asked: Sequence[str], threads: anyio.CapacityLimiter | None = None
    ) -> list[bool]:
        """Return for each key whether a caller may hear of it, as the permit says.

        Raises:
            PermitFailed: the permit gave no answer, or there is none.
        """
        if self._permit is None:
            raise PermitFailed(f"{self.name} has no permit")
        return await self._permit.ask(caller, asked, threads)

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
