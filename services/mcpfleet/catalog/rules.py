"""The catalog's decisions: what a pool lists, and which definitions make up an endpoint's snapshot. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from pydantic_core import to_json

from mcpfleet.contracts.catalog import Listed, Snapshot
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Definition, Manifest, digest_of

Key = tuple[str, str]
"""What no two definitions of an endpoint have in common: name and kind."""

UNNUMBERED: Final = 0


@dataclass(frozen=True, slots=True)
class ManifestCount:
    """How many live workers of a pool announce a manifest."""

    pool: str
    digest: str
    workers: int
    first_announced: float


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pool lists now."""

    name: str
    digest: str
    since: float
    is_empty: bool = False
    """It lists what it listed when its last worker went."""
    is_over: bool = False
    """It has been empty for as long as an empty pool may linger."""


@dataclass(frozen=True, slots=True)
class PoolLists:
    """The pool lists this manifest from now on, and has workers."""

    pool: str
    digest: str


@dataclass(frozen=True, slots=True)
class PoolEmpties:
    """The pool lost its last worker, and lingers from now on."""

    pool: str


@dataclass(frozen=True, slots=True)
class PoolEnds:
    """The pool lingered for long enough: it lists nothing more."""

    pool: str


Decision = PoolLists | PoolEmpties | PoolEnds


def decide(tallies: Iterable[ManifestCount], pools: Iterable[Pool]) -> list[Decision]:
    """Say what changes between what pools list and what their live workers announce.

    A pool lists the manifest that most of its workers announce, the newer of two equals: a rollout changes it once.
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
    """Name what endpoints are merged from: while it is the same, merging again changes nothing.

    It depends on no settings, which replicas may have different ones of.
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
    """A definition that a pool lists, and that an endpoint does not show."""

    pool: str
    kind: str
    name: str
    reason: str


@dataclass(frozen=True)
class Merged:
    """An endpoint's merged catalog, not numbered yet."""

    snapshot: Snapshot
    is_vacant: bool
    """No pool serves the endpoint."""
    refusals: tuple[Refusal, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Names the catalog without its number: the same while it shows the same."""
        return digest_of(self.snapshot.model_dump_json(exclude_defaults=True).encode())


@dataclass(frozen=True, slots=True)
class ShownDefinition:
    """What the snapshot before shows under a name."""

    pool: str
    size: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class _Claim:
    """A definition that its pool may show under a name that is its own."""

    listed: Listed
    size: int
    has_room: bool
    """It needs no more than what the pool shows under that name already."""


@dataclass
class _Merging:
    """Fills a snapshot up to its limit of bytes."""

    limit: int
    listed: list[Listed] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    size: int = 0

    def add(self, claims: Sequence[_Claim]) -> None:
        """Show all of these, or none where they do not fit."""
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

    A name belongs to the pool that holds it in the snapshot before, else to the pool that came first; another pool's
    claim is refused, be its definition the same or not: nobody's calls go to a pool that they did not go to before.
    Room is given likewise: first to what the snapshot before shows, as far as it has not grown, then to the rest of
    each pool, whole or not at all. So a pool that grows can evict nobody.

    Args:
        name: the endpoint's name.
        endpoint: its settings.
        serving: every pool, whether or not the endpoint admits it.
        held: what the snapshot before shows.
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


def is_change(book: EndpointState, merged: Merged) -> bool:
    """Whether a merged catalog is a new snapshot.

    An endpoint that no pool ever served has none: a client that came before the first worker would take an empty
    catalog's lack of tools for a lack of the capability.
    """
    return merged.digest != book.digest and not (book.number == UNNUMBERED and merged.is_vacant)


def holdings(snapshot: Snapshot) -> dict[Key, ShownDefinition]:
    """Say what a snapshot shows under each name."""
    return {_key(listed.definition): ShownDefinition(listed.pool, _size(listed)) for listed in snapshot.listed}


def _key(definition: Definition) -> Key:
    return definition.name, definition.kind


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
            key = _key(definition)
            is_free = key not in owners or _holds(held, pool.pool, key)
            if is_free and endpoint.allows(pool.pool, definition.name):
                owners[key] = pool.pool
    return owners


def _claims(
    merging: _Merging,
    endpoint: Endpoint,
    pool: PoolManifest,
    owners: Mapping[Key, str],
    held: Mapping[Key, ShownDefinition],
) -> list[_Claim]:
    """List the definitions of a pool that it may show and owns; the others are refused."""
    claims: list[_Claim] = []
    for digest, definition in pool.manifest.named:
        key = _key(definition)
        if not endpoint.allows(pool.pool, definition.name):
            merging.refuse(pool.pool, definition, "the endpoint's `names` do not allow it (MCPFLEET_ENDPOINTS)")
        elif owners.get(key) != pool.pool:
            merging.refuse(pool.pool, definition, f"the pool {owners.get(key)} has that name")
        else:
            listed = Listed(pool=pool.pool, digest=digest, definition=definition)
            size = _size(listed)
            has_room = _holds(held, pool.pool, key) and size <= held[key].size
            claims.append(_Claim(listed, size, has_room))
    return claims


def _snapshot(name: str, endpoint: Endpoint, admitted: Sequence[PoolManifest], listed: tuple[Listed, ...]) -> Snapshot:
    """Name the server: one pool's endpoint is its application, any other is the endpoint itself."""
    manifest = admitted[0].manifest if len(admitted) == 1 else None
    return Snapshot(
        endpoint=name,
        number=UNNUMBERED,
        name=manifest.name if manifest else name,
        version=manifest.version if manifest else endpoint.version,
        title=endpoint.title or (manifest.title if manifest else None),
        instructions=endpoint.instructions or (manifest.instructions if manifest else None),
        listed=listed,
    )


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint's row, without the snapshot's body."""

    endpoint: str
    number: int
    revision: int
    """The revision of the settings that it was merged by (MCPFLEET_CATALOG_REVISION)."""
    settings: str
    """Names those settings. It decides nothing: it shows that others have other settings."""
    inputs: str
    """Names what the pools listed then."""
    digest: str


def is_behind(book: EndpointState, revision: int, inputs: str) -> bool:
    """Whether a replica of this revision is to merge the endpoint again.

    A lower revision never overwrites a higher one. Of equal revisions, whoever first sees that the pools list something
    else merges, by its own settings; nobody merges for other settings alone, since two such replicas would never end.
    """
    if book.revision != revision:
        return book.revision < revision
    return book.inputs != inputs


def is_disputed(book: EndpointState, endpoint: Endpoint, revision: int) -> bool:
    """Whether it was merged by other settings of the same revision, which the operator did not tell apart from ours."""
    return book.revision == revision and book.settings != endpoint.digest
