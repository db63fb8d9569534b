"""Keeps what the operator's policy shows each group of callers, as far as authorization has said it (X48).

Nothing is ever shown for lack of an answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.errors import BusError
from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.policy import MOST_ITEMS, ItemShown, PolicyClient, VisibleWanted
from mcpfleet.wire.errors import not_answered

_MOST_GROUPS: Final = 10_000
"""Groups whose items are kept; the least recently used one goes first."""
_MOST_TEXT: Final = 1024 * 1024
"""Characters of the names in one question, so that no message is too large."""
_TRIES: Final = 3
"""Questions in a row whose answers may be older than the newest change of policy."""

_Key = tuple[str, int, str]
"""An endpoint, the number of its snapshot, and a group."""


class Visibility:
    """Keeps the items of groups, each as a number with a bit for each item of the snapshot."""

    def __init__(self, client: PolicyClient, *, log: FilteringBoundLogger) -> None:
        self._client = client
        self._log = log
        self._kept: OrderedDict[_Key, int] = OrderedDict()
        self._asked: dict[_Key, anyio.Event] = {}
        """The questions that are on their way."""
        self._least = 0
        """The newest change of policy: older answers do not count."""

    def policy_changed(self, number: int) -> None:
        """Forget everything: the policy may show something else from a revocation's number on."""
        self._least = max(self._least, number)
        self._kept.clear()

    def get(self, endpoint: str, number: int, group: str) -> int | None:
        """Return what a group sees of a snapshot; None where that is unknown."""
        key = endpoint, number, group
        visible = self._kept.get(key)
        if visible is not None:
            self._kept.move_to_end(key)
        return visible

    async def learn(self, snapshot: Snapshot, group: str) -> int:
        """Return what a group sees of a snapshot; ask authorization once for all who wait.

        Raises:
            NotAnswered: it did not say so in time.
        """
        key = snapshot.endpoint, snapshot.number, group
        while (visible := self.get(*key)) is None and (asked := self._asked.get(key)) is not None:
            await asked.wait()
        if visible is not None:
            return visible
        self._asked[key] = anyio.Event()
        try:
            return await self._ask(key, snapshot)
        except BusError as error:
            self._log.warning("policy not answered", endpoint=snapshot.endpoint, group=group, why=str(error))
            raise not_answered("the policy") from error
        finally:
            self._asked.pop(key).set()

    async def _ask(self, key: _Key, snapshot: Snapshot) -> int:
        """Ask until the answer is no older than the newest change of policy."""
        for _ in range(_TRIES):
            visible, number = await self._ask_pages(key, snapshot)
            if number >= self._least:
                self._kept[key] = visible
                while len(self._kept) > _MOST_GROUPS:
                    self._kept.popitem(last=False)
                return visible
        raise not_answered("the policy")

    async def _ask_pages(self, key: _Key, snapshot: Snapshot) -> tuple[int, int]:
        """Return what the group sees, and the oldest number among the answers."""
        endpoint, number, group = key
        visible, oldest, begin = 0, 2**62, 0
        for page in _pages(snapshot):
            wanted = VisibleWanted(endpoint=endpoint, snapshot=number, group=group, items=tuple(page))
            answer = await self._client.visible(wanted)
            places = range(len(page)) if answer.hides_nothing else answer.places
            for place in places:
                if 0 <= place < len(page):
                    visible |= 1 << (begin + place)
            begin, oldest = begin + len(page), min(oldest, answer.number)
        return visible, oldest


def _pages(snapshot: Snapshot) -> Iterator[list[ItemShown]]:
    """Split the items of a snapshot into questions."""
    page: list[ItemShown] = []
    size = 0
    for listed in snapshot.every:
        definition = listed.definition
        item = ItemShown(kind=definition.kind, name=definition.name, pool=listed.pool, scopes=definition.scopes)
        length = len(item.name) + sum(map(len, item.scopes))
        if page and (len(page) == MOST_ITEMS or size + length > _MOST_TEXT):
            yield page
            page, size = [], 0
        page.append(item)
        size += length
    if page:
        yield page
