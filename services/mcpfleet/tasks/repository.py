"""The tables of the tasks service: one object for each subject, over the same store. Replicas share nothing else."""

from __future__ import annotations

from mcpfleet.store.engine import Store
from mcpfleet.store.migrate import check_migrated
from mcpfleet.tasks.claims import Claims
from mcpfleet.tasks.creation import TaskCreator
from mcpfleet.tasks.idempotency import IdempotencyKeys
from mcpfleet.tasks.inputs import Inputs
from mcpfleet.tasks.listing import TaskLister
from mcpfleet.tasks.reading import TaskReader
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.tasks.steps import Steps
from mcpfleet.tasks.sweeps import LeaseGrace, Sweeps
from mcpfleet.tasks.tables import SCHEMA
from mcpfleet.tasks.task_end import TaskCanceller, TaskEnder
from mcpfleet.tasks.tool_reports import ToolReports


class TaskRepository:
    """The tables' only writer. Every method of its parts raises `StoreError` where the database does not do its work.

    Attributes:
        reader: reads tasks as their owners.
        creator: creates tasks.
        claims: gives them to workers, and renews leases.
        completer: ends them.
        canceller: takes cancellations.
        inputs: stores their questions and answers.
        steps: stores the results of their steps.
        keys: reserves idempotency keys.
        tool_reports: knows which versions of tools have workers.
        grace: gives holders time after an outage.
        sweeps: ends leases, limits and retentions.
        lister: lists tasks for an operator.
    """

    def __init__(self, store: Store, settings: TasksSettings) -> None:
        self._store = store
        self.reader = TaskReader(store, settings)
        self.creator = TaskCreator(store, settings, self.reader)
        self.completer = TaskEnder(store, settings)
        self.claims = Claims(store, settings, self.completer)
        self.canceller = TaskCanceller(store, self.completer)
        self.inputs = Inputs(store, settings)
        self.steps = Steps(store, settings)
        self.keys = IdempotencyKeys(store, settings)
        self.tool_reports = ToolReports(store, settings, self.completer)
        self.grace = LeaseGrace(store, settings)
        self.sweeps = Sweeps(store, settings, self.claims, self.completer, self.grace)
        self.lister = TaskLister(store, settings)

    async def open(self) -> None:
        """Check the tables, and make the row that must exist.

        Raises:
            ConfigurationError: the tables are older than this release; the sentence says what to run.
        """
        await check_migrated(self._store, SCHEMA)
        await self.grace.open()
