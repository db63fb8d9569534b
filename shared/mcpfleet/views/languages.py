"""The languages that an endpoint has, and its declared texts in one of them (X33, X37, X38)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.languages import key_of, texts_of_server, translated
from mcpfleet.contracts.manifest import Languages
from mcpfleet.wire.language import look_up

_MOST_CHOICES: Final = 256
"""Preferences whose language is remembered."""

Texts = Mapping[str, str]
"""The declared texts of a pool in one language, by context and source."""


class OfferedLanguages:
    """The languages of an endpoint's pools, of one snapshot."""

    def __init__(self, snapshot: Snapshot, texts: Mapping[tuple[str, str], Texts]) -> None:
        """Know a snapshot's languages.

        Args:
            snapshot: names them, by pool.
            texts: the pools' declared texts, by pool and tag; a missing one translates nothing.
        """
        self._pools: Mapping[str, Languages] = snapshot.languages
        self._texts = texts
        self._pools_shown = {listed.pool for listed in snapshot.every}
        defaults = dict.fromkeys(each.default for each in self._pools.values())
        tags = (tag for each in self._pools.values() for tag in each.offered)
        self._offered = tuple(dict.fromkeys((*defaults, *tags)))
        self._default = ", ".join(defaults)
        self._chosen: dict[str, str | None] = {}

    @property
    def are_several(self) -> bool:
        """Whether one text may be shown in several languages."""
        return len(self._offered) > 1

    def choose(self, preference: str | None) -> str | None:
        """Return the language that fits a preference; None for the default one (X31)."""
        if preference is None:
            return None
        if preference not in self._chosen:
            if len(self._chosen) >= _MOST_CHOICES:
                self._chosen.clear()
            chosen = look_up(preference, self._offered)
            is_default = chosen is None or all(
                self.of_pool(pool, chosen) == each.default for pool, each in self._pools.items()
            )
            self._chosen[preference] = None if is_default else chosen
        return self._chosen[preference]

    def named(self, chosen: str | None) -> str:
        """Return the value of `Content-Language` for a chosen language."""
        return self._default if chosen is None else chosen

    def of_pool(self, pool: str, chosen: str | None) -> str | None:
        """Return the language in which a pool's handlers answer; None for a pool that declares none."""
        languages = self._pools.get(pool)
        if languages is None:
            return None
        return (look_up(chosen, languages.offered) if chosen is not None else None) or languages.default

    def translation(self, chosen: str | None) -> Translation | None:
        """Return what translates declared texts; None where they stay as they are."""
        found = {pool: self._texts.get((pool, self.of_pool(pool, chosen) or "")) for pool in self._pools}
        texts = {pool: each for pool, each in found.items() if each}
        if not texts:
            return None
        own = next(iter(self._pools_shown)) if len(self._pools_shown) == 1 else None
        return Translation(texts, {pool: self._pools[pool].translate for pool in texts}, own)


class Translation:
    """Translates declared texts into one language."""

    def __init__(self, texts: Mapping[str, Texts], options: Mapping[str, Iterable[str]], own: str | None) -> None:
        """Translate by these texts.

        Args:
            texts: by pool.
            options: what each pool has translated besides titles.
            own: the one pool of the endpoint, whose texts about the server count; None for several.
        """
        self._texts = texts
        self._options = {pool: frozenset(each) for pool, each in options.items()}
        self._own = own

    def entry(self, listed: Listed, entry: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an entry of a list in the language; the same object where nothing changes."""
        texts = self._texts.get(listed.pool)
        if texts is None:
            return entry
        return translated(
            listed.definition,
            entry,
            lambda context, text: texts.get(key_of(context, text), text),
            self._options[listed.pool],
        )

    def server(self, snapshot: Snapshot) -> Mapping[str, str]:
        """Return the translated texts about the server: title, description, instructions."""
        texts = self._texts.get(self._own or "", {})
        options = self._options.get(self._own or "", frozenset())
        return {
            str(each.path[0]): texts[key_of(each.context, each.text)]
            for each in texts_of_server(snapshot.title, snapshot.description, snapshot.instructions)
            if (each.option is None or each.option in options) and key_of(each.context, each.text) in texts
        }
