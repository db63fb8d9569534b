"""What decides what a caller sees: which of a catalog's rules fit it, and which of its scopes it holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal


class Rights(NamedTuple):
    """What of a principal decides what it sees of one snapshot; equal rights share a view."""

    is_named: bool
    """It is somebody, so what it is told is for nobody else's cache."""
    rules: frozenset[str] = frozenset()
    """The `only_for` rules that fit it."""
    scopes: frozenset[str] | None = None
    """Those of the catalog's scopes that it holds; None where scopes hide nothing."""

    def shows(self, definition: Definition) -> bool:
        """Whether a definition exists for callers of these rights."""
        if definition.only_for and self.rules.isdisjoint(definition.only_for):
            return False
        return self.scopes is None or self.scopes.issuperset(definition.scopes)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules and scopes that a snapshot's definitions speak of."""

    rules: tuple[str, ...]
    scopes: frozenset[str]
    hides_uncovered: bool
    """What a caller's scopes do not cover does not exist for it, where it would otherwise be refused."""

    @classmethod
    def of(cls, snapshot: Snapshot, *, hides_uncovered: bool) -> Policy:
        """Collect them."""
        definitions = [listed.definition for listed in snapshot.listed]
        rules = dict.fromkeys(rule for definition in definitions for rule in definition.only_for)
        scopes = frozenset(scope for definition in definitions for scope in definition.scopes)
        return cls(tuple(rules), scopes, hides_uncovered)

    @property
    def depends_on_caller(self) -> bool:
        """Whether two callers may see different things (M46)."""
        return bool(self.rules) or (self.hides_uncovered and bool(self.scopes))

    def rights(self, principal: Principal) -> Rights:
        """Work out a principal's rights."""
        rules = frozenset(rule for rule in self.rules if fits(rule, principal)) if self.rules else frozenset[str]()
        is_named = not principal.is_anonymous
        scopes = self.scopes.intersection(principal.scopes) if self.hides_uncovered and is_named else None
        return Rights(is_named, rules, scopes)


def holds(principal: Principal, scopes: Iterable[str]) -> bool:
    """Whether a principal has all of these scopes; where nobody needs a credential, nobody has scopes, nor needs any.

    The one rule for calls, tasks and hints: an edge that wants credentials admits nobody as `ANONYMOUS`.
    """
    return principal.is_anonymous or set(scopes).issubset(principal.scopes)


def fits(rule: str, principal: Principal) -> bool:
    """Whether a rule such as `tenant:acme-*` fits a principal; one that nobody understands fits nobody."""
    kind, _, pattern = rule.partition(":")
    name = {"tenant": principal.tenant, "client": principal.client, "subject": principal.subject}.get(kind)
    return name is not None and fnmatchcase(name, pattern)
