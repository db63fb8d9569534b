"""The catalog's handlers: workers announce, edges fetch snapshots, operators withdraw pools."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from mcpfleet.bus.actor import Actor, RpcContext
from mcpfleet.catalog.files import FileRepository
from mcpfleet.catalog.manifests import check_names
from mcpfleet.catalog.repository import CatalogRepository
from mcpfleet.catalog.sweeper import CatalogSweeper
from mcpfleet.contracts.catalog import (
    ANNOUNCE,
    SNAPSHOT,
    WITHDRAW,
    Announce,
    Announced,
    SnapshotAnswer,
    SnapshotWanted,
    Withdraw,
    Withdrawn,
)
from mcpfleet.contracts.endpoints import Endpoint
from mcpfleet.contracts.files import FILE_GET, FILE_PUT, Chunk, ChunkStored, ChunkWanted, PutChunk
from mcpfleet.telemetry.trace import current

GROUP: Final = "catalog"


class CatalogActor:
    """Answers workers, edges and operators. Handlers write and read facts; the sweeper merges snapshots of them."""

    def __init__(
        self,
        repository: CatalogRepository,
        files: FileRepository,
        sweeper: CatalogSweeper,
        endpoints: Mapping[str, Endpoint],
        *,
        log: FilteringBoundLogger,
    ) -> None:
        self._repository = repository
        self._files = files
        self._sweeper = sweeper
        self._endpoints = endpoints
        self._log = log

    async def register(self, actor: Actor) -> None:
        """Answer from now on."""
        await actor.answer(ANNOUNCE, self.announce, group=GROUP)
        await actor.answer(SNAPSHOT, self.snapshot, group=GROUP)
        await actor.answer(WITHDRAW, self.withdraw, group=GROUP)
        await actor.answer(FILE_PUT, self.put_file, group=GROUP)
        await actor.answer(FILE_GET, self.get_file, group=GROUP)

    async def announce(self, question: Announce, context: RpcContext) -> Announced:
        """Count a worker in, or out where it leaves. The subject names its pool, and the worker does not."""
        pool = context.tokens["pool"]
        check_names(question.process, question.digest)
        counted = Announced(endpoints=tuple(name for name, each in self._endpoints.items() if each.admits(pool)))
        if question.leaving:
            await self._repository.leave(pool, question.process)
        elif await self._repository.hear(pool, question.process, question.digest):
            return counted
        elif (missing := await self._repository.count_in(pool, question)) != Announced():
            return missing
        self._sweeper.wake(current.get())
        return counted

    async def snapshot(self, question: SnapshotWanted, context: RpcContext) -> SnapshotAnswer:  # noqa: ARG002
        """Answer with an endpoint's newest snapshot, unless the edge has it."""
        return await self._repository.snapshot(question.endpoint, question.known)

    async def put_file(self, question: PutChunk, context: RpcContext) -> ChunkStored:
        """Keep a part of a pool's file."""
        return ChunkStored(whole=await self._files.put(context.tokens["pool"], question))

    async def get_file(self, question: ChunkWanted, context: RpcContext) -> Chunk:  # noqa: ARG002
        """Answer with a part of a pool's file."""
        body = await self._files.get(question.pool, question.digest, question.number)
        return Chunk(data=base64.b64encode(body).decode())

    async def withdraw(self, question: Withdraw, context: RpcContext) -> Withdrawn:  # noqa: ARG002
        """End a pool that lingers; it is off the lists when the answer arrives."""
        withdrawn, rebuilt = await self._repository.withdraw(question.pool)
        self._log.info(
            "pool withdrawn", pool=question.pool, definitions=withdrawn.definitions, workers=withdrawn.workers
        )
        self._sweeper.tell(rebuilt, current.get())
        return withdrawn
