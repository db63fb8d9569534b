"""The rights of a caller: the rules of a catalog that fit it, and the scopes that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from mcpfleet.contracts.apps import Audience, has_ui, is_ui
from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.manifest import Definition
from mcpfleet.contracts.principal import Principal


class Rights(NamedTuple):
    """The part of a principal that decides what it sees of one snapshot; equal rights share a view."""

    is_named: bool
    """It has a name, so answers to it are for nobody else's cache."""
    rules: frozenset[str] = frozenset()
    """The `only_for` rules that fit it."""
    scopes: frozenset[str] | None = None
    """The scopes of the catalog that it holds; None if scopes hide nothing."""
    revision: str | None = None
    """The revision of its request; None where the revision hides nothing, or that of nobody in particular."""

    visible: int | None = None
    """The items of the snapshot that the operator's policy shows its group, a bit for each; None without a policy."""
    audience: Audience = Audience.WITHOUT_APPS
    """The kind of client; the same for all where nothing depends on it (X12)."""

    language: str | None = None
    """The language of its texts; None for the default."""

    def sees(self, place: int) -> bool:
        """Return whether the policy shows the item at a place of the snapshot (X48)."""
        return self.visible is None or bool(self.visible >> place & 1)

    def shows(self, definition: Definition) -> bool:
        """Return whether a definition exists for callers of these rights."""
        if definition.only_for and self.rules.isdisjoint(definition.only_for):
            return False
        if not self.is_offered(definition):
            return False
        return self.scopes is None or self.scopes.issuperset(definition.scopes)

    def is_offered(self, definition: Definition) -> bool:
        """Return whether a definition exists for clients of its kind, whoever they are."""
        if self.revision is not None and not is_of(definition, self.revision):
            return False
        return self.audience is not Audience.WITHOUT_UI or not is_ui(definition)


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules and scopes that a snapshot's definitions speak of."""

    rules: tuple[str, ...]
    scopes: frozenset[str]
    hides_uncovered: bool
    """Definitions whose scopes a caller lacks do not exist for it; otherwise it is refused."""
    has_revisions: bool = False
    """Some definition exists for requests of some revisions only (X61)."""
    has_apps: bool = False
    """Some definition is shown otherwise to clients with Apps, or to those without (X12)."""

    @classmethod
    def of(cls, snapshot: Snapshot, *, hides_uncovered: bool) -> Policy:
        """Collect the rules and scopes of a snapshot."""
        definitions = [listed.definition for listed in snapshot.every]
        rules = dict.fromkeys(rule for definition in definitions for rule in definition.only_for)
        scopes = frozenset(scope for definition in definitions for scope in definition.scopes)
        has_revisions = any(definition.revisions for definition in definitions)
        has_apps = any(is_ui(each) or has_ui(each) or each.unlisted for each in definitions)
        return cls(tuple(rules), scopes, hides_uncovered, has_revisions, has_apps)

    @property
    def depends_on_caller(self) -> bool:
        """Whether two callers may see different things (M46)."""
        return bool(self.rules) or (self.hides_uncovered and bool(self.scopes))

    def rights(
        self,
        principal: Principal,
        revision: str | None = None,
        visible: int | None = None,
        audience: Audience = Audience.WITHOUT_APPS,
        language: str | None = None,
    ) -> Rights:
        """Return the rights of a principal in requests of a revision; without one no revision hides anything.

        Args:
            principal: the caller.
            revision: its request's.
            visible: what the operator's policy shows its group; None without a policy.
            audience: the kind of its client.
            language: the chosen language of its request; None for the default.
        """
        rules = frozenset(rule for rule in self.rules if fits(rule, principal)) if self.rules else frozenset[str]()
        is_named = not principal.is_anonymous
        scopes = self.scopes.intersection(principal.scopes) if self.hides_uncovered and is_named else None
        if not self.has_apps:
            audience = Audience.WITHOUT_APPS
        revision = revision if self.has_revisions else None
        return Rights(is_named, rules, scopes, revision, visible, audience, language)


def is_of(definition: Definition, revision: str) -> bool:
    """Return whether a definition exists in requests of a revision (X61)."""
    return not definition.revisions or revision in definition.revisions


def fits(rule: str, principal: Principal) -> bool:
    """Return whether a rule such as `tenant:acme-*` fits a principal; an unknown rule fits nobody."""
    kind, _, pattern = rule.partition(":")
    name = {"tenant": principal.tenant, "client": principal.client, "subject": principal.subject}.get(kind)
    return name is not None and fnmatchcase(name, pattern)
