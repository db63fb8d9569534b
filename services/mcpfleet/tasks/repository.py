"""What the tasks service keeps: one object for each noun, over the same store. Replicas share nothing else."""

from __future__ import annotations

from mcpfleet.store.engine import Store
from mcpfleet.store.migrate import check_migrated
from mcpfleet.tasks.claims import Claims
from mcpfleet.tasks.completion import Cancels, Endings
from mcpfleet.tasks.creation import Maker
from mcpfleet.tasks.idempotency import Reservations
from mcpfleet.tasks.inputs import Inputs
from mcpfleet.tasks.listing import Lister
from mcpfleet.tasks.reading import Reader
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.steps import Steps
from mcpfleet.tasks.sweeps import Outage, Sweeps
from mcpfleet.tasks.tables import SCHEMA
from mcpfleet.tasks.tool_reports import Serving


class Ledger:
    """The tables' only writer. Every method of its parts raises `StoreError` where the database does not do its work.

    Attributes:
        reader: reads tasks as their owners.
        maker: makes them.
        claims: who holds them.
        endings: how they end.
        cancels: wishes that they end.
        inputs: their questions and answers.
        steps: what their steps came to.
        reservations: idempotency keys.
        serving: which versions of tools have workers.
        outage: for how long holders could have been heard.
        sweeps: what time does.
        lister: what an operator sees.
    """

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self.reader = Reader(store, settings)
        self.maker = Maker(store, settings, self.reader)
        self.endings = Endings(store, settings)
        self.claims = Claims(store, settings, self.endings)
        self.cancels = Cancels(store, self.endings)
        self.inputs = Inputs(store, settings)
        self.steps = Steps(store, settings)
        self.reservations = Reservations(store, settings)
        self.serving = Serving(store, settings, self.endings)
        self.outage = Outage(store, settings)
        self.sweeps = Sweeps(store, settings, self.claims, self.endings, self.outage)
        self.lister = Lister(store, settings)

    async def open(self) -> None:
        """Be able to serve.

        Raises:
            ConfigurationError: the tables are older than this release; the sentence says what to run.
        """
        await check_migrated(self._store, SCHEMA)
        await self.outage.open()
