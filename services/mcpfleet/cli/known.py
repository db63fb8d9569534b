"""Every class of settings: one environment may serve all processes, and a name that none of them knows is a mistake."""

from __future__ import annotations

from typing import Final

from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.catalog.settings import CatalogSettings
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.process.settings import Settings
from mcpfleet.subscriptions.settings import SubscriptionsSettings
from mcpfleet.tasks.settings import TasksSettings
from mcpfleet.worker.settings import WorkerSettings

SETTINGS: Final[dict[str, type[Settings]]] = {
    "edge": EdgeSettings,
    "authorization": AuthorizationSettings,
    "catalog": CatalogSettings,
    "subscriptions": SubscriptionsSettings,
    "tasks": TasksSettings,
    "worker": WorkerSettings,
}
"""By the names of their services."""
