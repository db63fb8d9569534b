"""The catalog's decisions: what a pool lists, and which definitions an endpoint's snapshot has. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pydantic_core import to_json

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import CACHED, OWN_KINDS, Definition, Manifest, digest_of

Key = tuple[str, str]
"""Name and kind: no two definitions of an endpoint share both."""

UNNUMBERED: Final = 0


@dataclass(frozen=True, slots=True)
class ManifestCount:
    """How many live workers of a pool announce one manifest."""

    pool: str
    digest: str
    workers: int
    first_announced: float


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool and the manifest that it lists now."""

    name: str
    digest: str
    since: float
    is_empty: bool = False
    """It has no workers, and lists the last one's manifest."""
    is_over: bool = False
    """It has been empty for as long as an empty pool may stay listed."""


@dataclass(frozen=True, slots=True)
class PoolLists:
    """The pool has workers, and lists this manifest from now on."""

    pool: str
    digest: str


@dataclass(frozen=True, slots=True)
class PoolEmpties:
    """The pool lost its last worker, and stays listed for a while."""

    pool: str


@dataclass(frozen=True, slots=True)
class PoolEnds:
    """The pool stayed empty for too long, and is no longer listed."""

    pool: str


Decision = PoolLists | PoolEmpties | PoolEnds


def decide(tallies: Iterable[ManifestCount], pools: Iterable[Pool]) -> list[Decision]:
    """Decide how pools' lists change by what their live workers announce.

    A pool lists the manifest that most of its workers announce, and of two equals the newer: a rollout changes it once.
    """
    chosen: dict[str, ManifestCount] = {}
    for each in sorted(tallies, key=lambda each: (each.workers, each.first_announced, each.digest)):
        chosen[each.pool] = each
    known = {pool.name: pool for pool in pools}
    decisions: list[Decision] = []
    for name in sorted(chosen.keys() | known.keys()):
        pool, tally = known.get(name), chosen.get(name)
        if tally is not None:
            if pool is None or pool.is_empty or pool.digest != tally.digest:
                decisions.append(PoolLists(name, tally.digest))
        elif pool is not None and not pool.is_empty:
            decisions.append(PoolEmpties(name))
        elif pool is not None and pool.is_over:
            decisions.append(PoolEnds(name))
    return decisions


def inputs_digest(pools: Iterable[Pool]) -> str:
    """Digest what endpoints are merged from: while it is the same, merging again changes nothing.

    It does not depend on settings, in which replicas may differ.
    """
    return digest_of(to_json(sorted((pool.name, pool.digest, pool.since) for pool in pools)))


@dataclass(frozen=True, slots=True)
class PoolManifest:
    """A pool with the manifest that it lists."""

    pool: str
    since: float
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Refusal:
    """A definition that a pool lists and an endpoint does not show."""

    pool: str
    kind: str
    name: str
    reason: str


@dataclass(frozen=True)
class Merged:
    """An endpoint's merged catalog, before it has a number."""

    snapshot: Snapshot
    is_vacant: bool
    """No pool serves the endpoint."""
    refusals: tuple[Refusal, ...] = ()

    @cached_property
    def digest(self) -> str:
        """The catalog's digest without its number: it is the same while the catalog shows the same."""
        return digest_of(self.snapshot.model_dump_json(exclude_defaults=True).encode())


@dataclass(frozen=True, slots=True)
class ShownDefinition:
    """A definition of the former snapshot."""

    pool: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A definition whose name belongs to its pool, and which the endpoint allows."""

    listed: Listed
    size: int
    has_room: bool
    """It is no larger than in the former snapshot."""


@dataclass
class _Merging:
    """A snapshot that fills up to its limit of bytes."""

    limit: int
    listed: list[Listed] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    size: int = 0

    def add(self, claims: Sequence[_Claim]) -> None:
        """Show all of these definitions, or none if they do not fit."""
        size = sum(claim.size for claim in claims)
        if self.size + size <= self.limit:
            self.size += size
            self.listed.extend(claim.listed for claim in claims)
            return
        reason = f"the snapshot is full: {self.limit} bytes (MCPFLEET_SNAPSHOT_LIMIT)"
        for claim in claims:
            self.refuse(claim.listed.pool, claim.listed.definition, reason)

    def refuse(self, pool: str, definition: Definition, reason: str) -> None:
        self.refusals.append(Refusal(pool, definition.kind, definition.name, reason))


def merge(
    name: str, endpoint: Endpoint, serving: Sequence[PoolManifest], held: Mapping[Key, ShownDefinition], *, limit: int
) -> Merged:
    """Merge what pools list into what an endpoint shows.

    A name belongs to the pool that has it in the former snapshot, else to the pool that came first. Another pool's
    claim is refused, even with an equal definition, so that calls never move to another pool by themselves. Space is
    given in the same order. Definitions of the former snapshot come first, if they have not grown. Then comes the rest
    of each pool, all of it or nothing. So a pool that grows cannot evict another's definitions.

    Args:
        name: the endpoint's name.
        endpoint: its settings.
        serving: every pool, whether or not the endpoint admits it.
        held: the definitions of the former snapshot.
        limit: bytes of listed definitions that fit (MCPFLEET_SNAPSHOT_LIMIT).
    """
    admitted = sorted(
        (pool for pool in serving if endpoint.admits(pool.pool)), key=lambda pool: (pool.since, pool.pool)
    )
    owners = _owners(endpoint, admitted, held)
    merging = _Merging(limit)
    claims = [_claims(merging, endpoint, pool, owners, held) for pool in admitted]
    for each in claims:
        merging.add([claim for claim in each if claim.has_room])
    for each in claims:
        merging.add([claim for claim in each if not claim.has_room])
    merging.listed.sort(key=lambda listed: (listed.definition.name, listed.definition.kind))
    return Merged(
        _snapshot(name, endpoint, admitted, tuple(merging.listed)),
        is_vacant=not admitted,
        refusals=tuple(merging.refusals),
    )


def is_change(state: EndpointState, merged: Merged) -> bool:
    """Whether a merged catalog is a new snapshot.

    An endpoint has no snapshot until a pool serves it. From an empty catalog, an early client would conclude that the
    server lacks tools.
    """
    return merged.digest != state.digest and not (state.number == UNNUMBERED and merged.is_vacant)


def holdings(snapshot: Snapshot) -> dict[Key, ShownDefinition]:
    """The definitions of a snapshot, by name and kind."""
    return {
        key: ShownDefinition(listed.pool, _size(listed))
        for listed in snapshot.every
        for key in _keys(listed.definition)
    }


def _key(definition: Definition) -> Key:
    return definition.name, definition.kind


def _keys(definition: Definition) -> tuple[Key, ...]:
    """Return all that no other pool may have: a notification also has the field of its filter (X42)."""
    key = _key(definition)
    return (key,) if definition.filter is None else (key, (definition.filter, "filter"))


def _holds(held: Mapping[Key, ShownDefinition], pool: str, key: Key) -> bool:
    return key in held and held[key].pool == pool


def _size(listed: Listed) -> int:
    return len(listed.model_dump_json(exclude_defaults=True).encode())


def _owners(
    endpoint: Endpoint, admitted: Sequence[PoolManifest], held: Mapping[Key, ShownDefinition]
) -> dict[Key, str]:
    owners: dict[Key, str] = {}
    for pool in admitted:
        for _, definition in pool.manifest.named:
            for key in _keys(definition):
                is_free = key not in owners or _holds(held, pool.pool, key)
                if is_free and endpoint.allows(pool.pool, definition.name):
                    owners[key] = pool.pool
    return owners


def _rival(owners: Mapping[Key, str], pool: str, definition: Definition) -> str | None:
    """Return why another pool's claim comes first; None where none does."""
    for name, kind in _keys(definition):
        if owners.get((name, kind)) != pool:
            what = "that name" if name == definition.name else f"the {kind} {name!r}"
            return f"the pool {owners.get((name, kind))} has {what}"
    if definition.extension is not None and (owner := owners.get((definition.extension, "extension"))) != pool:
        whose = "no pool serves" if owner is None else f"the pool {owner} has"
        return f"{whose} its extension {definition.extension!r}"
    return None


def _claims(
    merging: _Merging,
    endpoint: Endpoint,
    pool: PoolManifest,
    owners: Mapping[Key, str],
    held: Mapping[Key, ShownDefinition],
) -> list[_Claim]:
    """List the definitions that a pool owns and the endpoint allows; refuse the others."""
    claims: list[_Claim] = []
    for digest, definition in pool.manifest.named:
        key = _key(definition)
        if not endpoint.allows(pool.pool, definition.name):
            merging.refuse(pool.pool, definition, "the endpoint's `names` do not allow it (MCPFLEET_ENDPOINTS)")
        elif (why := _rival(owners, pool.pool, definition)) is not None:
            merging.refuse(pool.pool, definition, why)
        else:
            listed = Listed(pool=pool.pool, digest=digest, definition=definition)
            size = _size(listed)
            has_room = _holds(held, pool.pool, key) and size <= held[key].size
            claims.append(_Claim(listed, size, has_room))
    return claims


def _ttl(endpoint: Endpoint, stated: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the seconds for which clients may keep answers, and the answers of which a pool does not state any (X74).

    The endpoint's own settings go first; else the least that a pool states counts.
    """
    ttl: dict[str, float] = {}
    partly: list[str] = []
    for cached in CACHED:
        of_pools = [each[cached] for each in stated if cached in each]
        if cached in endpoint.ttl:
            ttl[cached] = endpoint.ttl[cached]
        elif of_pools:
            ttl[cached] = min(of_pools)
            if len(of_pools) < len(stated):
                partly.append(cached)
    return ttl, tuple(partly)


def _snapshot(name: str, endpoint: Endpoint, admitted: Sequence[PoolManifest], listed: tuple[Listed, ...]) -> Snapshot:
    """Compose the snapshot. An endpoint of one pool has its application's name; any other has the endpoint's."""
    manifest = admitted[0].manifest if len(admitted) == 1 else None
    ttl, partly = _ttl(endpoint, [pool.manifest.ttl for pool in admitted])
    return Snapshot(
        endpoint=name,
        number=UNNUMBERED,
        name=manifest.name if manifest else name,
        version=manifest.version if manifest else endpoint.version,
        title=endpoint.title or (manifest.title if manifest else None),
        description=manifest.description if manifest else None,
        icons=manifest.icons if manifest else (),
        website_url=manifest.website_url if manifest else None,
        logs=not admitted or any(pool.manifest.logs for pool in admitted),
        instructions=endpoint.instructions or (manifest.instructions if manifest else None),
        ttl=ttl,
        partly=partly,
        languages={each.pool: each.manifest.languages for each in admitted if each.manifest.languages is not None},
        listed=tuple(each for each in listed if each.definition.kind not in OWN_KINDS),
        extensions=tuple(each for each in listed if each.definition.kind in OWN_KINDS),
    )


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint's row in the store, without the snapshot's body."""

    endpoint: str
    number: int
    revision: int
    """The revision of the settings by which it was merged (MCPFLEET_CATALOG_REVISION)."""
    settings: str
    """A digest of those settings. It only shows that replicas have different settings."""
    inputs: str
    """A digest of what the pools listed then."""
    digest: str


def is_behind(state: EndpointState, revision: int, inputs: str) -> bool:
    """Whether a replica of this revision must merge the endpoint again.

    A lower revision never overwrites a higher one. At equal revisions, the replica that first sees a change in what
    pools list merges by its own settings. Different settings alone are no reason: two such replicas would never stop.
    """
    if state.revision != revision:
        return state.revision < revision
    return state.inputs != inputs


def is_disputed(state: EndpointState, endpoint: Endpoint, revision: int) -> bool:
    """Whether another replica merged it by different settings of the same revision."""
    return state.revision == revision and state.settings != endpoint.digest
