"""Brings pools and snapshots up to date with what workers announce, in a transaction that one replica has at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection
from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.rpc import broken_rules
from mcpfleet.catalog import observation
from mcpfleet.catalog.observation import Observation
from mcpfleet.catalog.rules import (
    UNNUMBERED,
    Decision,
    EndpointState,
    Merged,
    Pool,
    PoolEmpties,
    PoolEnds,
    PoolLists,
    PoolManifest,
    Refusal,
    decide,
    holdings,
    inputs_digest,
    is_behind,
    is_change,
    is_disputed,
    merge,
)
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.catalog.tables import endpoints, manifests, pools, workers
from mcpfleet.contracts.catalog import Snapshot
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.manifest import Manifest
from mcpfleet.store.sql import insert_into, now


@dataclass(frozen=True)
class Rebuilt:
    """An endpoint that was merged."""

    endpoint: str
    number: int
    is_new: bool
    """The snapshot changed: the number grew by one."""
    size: int
    """How many definitions it lists."""
    refusals: tuple[Refusal, ...]


def read_snapshot(body: str) -> Snapshot | None:
    """Read a stored snapshot; None where this release cannot read it."""
    try:
        return Snapshot.model_validate_json(body)
    except ValidationError:
        return None


class Rebuilder:
    """Decides whether there is work to do, and does it."""

    def __init__(self, settings: CatalogSettings, log: FilteringBoundLogger) -> None:
        self._settings = settings
        self._log = log
        self._manifests: dict[str, Manifest | None] = {}
        """The parsed manifests that pools list, by digest; None where this release cannot read one."""
        self._told: set[tuple[str, str]] = set()
        """The alarms that were logged, each once."""

    def is_due(self, seen: Observation) -> bool:
        """Whether the tables are behind what workers announce, as far as a read without locks can tell."""
        if seen.has_silent or seen.has_stray or decide(seen.tallies, seen.pools):
            return True
        states = {state.endpoint: state for state in seen.states}
        inputs = inputs_digest(seen.pools)
        return any(name not in states or self._is_behind(states[name], inputs) for name in self._settings.endpoints)

    def watch_settings(self, seen: Observation) -> None:
        """Log once for each endpoint that it was merged by other settings than ours."""
        for state in seen.states:
            endpoint = self._settings.endpoints.get(state.endpoint)
            if endpoint and is_disputed(state, endpoint, self._settings.catalog_revision):
                self._alarm(
                    state.endpoint, "others of the same MCPFLEET_CATALOG_REVISION have other MCPFLEET_ENDPOINTS"
                )

    async def perform(self, connection: AsyncConnection, *, lost: float | None) -> list[Rebuilt]:
        """Bring everything up to date in the caller's transaction.

        Args:
            connection: a transaction for writing.
            lost: seconds of silence after which a worker counts no more; None while silence does not count.
        """
        await self._insert_new_endpoints(connection)
        states = await observation.read_endpoints(connection, lock=True)
        if lost is not None:
            await connection.execute(delete(workers).where(observation.is_silent(lost)))
        listed = await observation.read_pools(connection, self._settings)
        for decision in decide(await observation.read_counts(connection), listed):
            await _apply(connection, decision)
        listed = await observation.read_pools(connection, self._settings)
        inputs = inputs_digest(listed)
        behind = [
            state for state in states if state.endpoint in self._settings.endpoints and self._is_behind(state, inputs)
        ]
        if behind:
            await self._load(connection, {pool.digest for pool in listed})
        rebuilt = [await self._merge_endpoint(connection, state, listed) for state in behind]
        return [each for each in rebuilt if each is not None]

    def _is_behind(self, state: EndpointState, inputs: str) -> bool:
        return is_behind(state, self._settings.catalog_revision, inputs)

    async def _insert_new_endpoints(self, connection: AsyncConnection) -> None:
        """Insert the rows of new endpoints, with a revision below every other."""
        for name in sorted(self._settings.endpoints):
            await connection.execute(
                insert_into(endpoints, connection)
                .values(endpoint=name, number=0, revision=-1, settings="", inputs="", digest="", body="")
                .on_conflict_do_nothing()
            )

    async def _merge_endpoint(
        self, connection: AsyncConnection, state: EndpointState, listed: Sequence[Pool]
    ) -> Rebuilt | None:
        """Merge one endpoint; it stays the same where this release could write only a part of it."""
        endpoint = self._settings.endpoints[state.endpoint]
        unread = [pool.name for pool in listed if endpoint.admits(pool.name) and self._manifests[pool.digest] is None]
        if unread:
            self._alarm(state.endpoint, f"this release cannot read the manifests of: {', '.join(sorted(unread))}")
            return None
        former = await self._former(connection, state)
        merged = self._merge(state, endpoint, listed, former)
        is_new = is_change(state, merged) or (former is None and state.number > UNNUMBERED)
        number = state.number + is_new
        values: dict[str, Any] = {"revision": self._settings.catalog_revision, "settings": endpoint.digest}
        values["inputs"] = inputs_digest(listed)
        if is_new:
            snapshot = merged.snapshot.model_copy(update={"number": number})
            body = snapshot.model_dump_json(exclude_defaults=True)
            if read_snapshot(body) != snapshot:
                self._alarm(state.endpoint, "the merged catalog does not survive being written and read")
                return None
            values |= {"number": number, "digest": merged.digest, "body": body}
        await connection.execute(update(endpoints).where(endpoints.c.endpoint == state.endpoint).values(**values))
        return Rebuilt(state.endpoint, number, is_new, len(merged.snapshot.every), merged.refusals)

    async def _former(self, connection: AsyncConnection, state: EndpointState) -> Snapshot | None:
        """Read the endpoint's snapshot; None where it has none, or this release cannot read it."""
        if state.number == UNNUMBERED:
            return None
        body = await connection.scalar(select(endpoints.c.body).where(endpoints.c.endpoint == state.endpoint))
        former = read_snapshot(body or "")
        if former is None:
            self._log.error("unreadable snapshot replaced", endpoint=state.endpoint, number=state.number)
        return former

    def _merge(
        self, state: EndpointState, endpoint: Endpoint, listed: Sequence[Pool], former: Snapshot | None
    ) -> Merged:
        held = holdings(former) if former else {}
        found = [(pool, self._manifests[pool.digest]) for pool in listed]
        serving = [PoolManifest(pool.name, pool.since, manifest) for pool, manifest in found if manifest is not None]
        return merge(state.endpoint, endpoint, serving, held, limit=self._settings.snapshot_limit)

    async def _load(self, connection: AsyncConnection, digests: set[str]) -> None:
        """Keep these manifests parsed, and no others."""
        self._manifests = {digest: self._manifests[digest] for digest in digests & self._manifests.keys()}
        missing = digests - self._manifests.keys()
        rows = await connection.execute(
            select(manifests.c.digest, manifests.c.body).where(manifests.c.digest.in_(missing))
        )
        for digest, body in rows:
            self._manifests[digest] = self._read(digest, body)

    def _read(self, digest: str, body: str) -> Manifest | None:
        try:
            manifest = Manifest.model_validate_json(body)
            _ = manifest.named  # parses the definitions, and caches them
        except ValidationError as error:
            self._log.error("manifest not readable", digest=digest, error=broken_rules(error))
            return None
        return manifest

    def _alarm(self, endpoint: str, why: str) -> None:
        """Log once why an endpoint is not as these settings want it."""
        if (endpoint, why) not in self._told:
            self._told.add((endpoint, why))
            self._log.error("endpoint not as set", endpoint=endpoint, reason=why)


async def _apply(connection: AsyncConnection, decision: Decision) -> None:
    match decision:
        case PoolLists(pool, digest):
            listing = insert_into(pools, connection).values(pool=pool, digest=digest, since=now())
            await connection.execute(
                listing.on_conflict_do_update(index_elements=["pool"], set_={"digest": digest, "emptied_at": None})
            )
        case PoolEmpties(pool):
            await connection.execute(update(pools).where(pools.c.pool == pool).values(emptied_at=now()))
        case PoolEnds(pool):
            await connection.execute(delete(pools).where(pools.c.pool == pool))
