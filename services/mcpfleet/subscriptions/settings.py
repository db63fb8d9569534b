"""The settings of subscriptions."""

from __future__ import annotations

from pydantic import Field

from mcpfleet.process.settings import ProcessSettings, Seconds
from mcpfleet.store.settings import StoreSettings


class SubscriptionsSettings(StoreSettings, ProcessSettings):
    """What subscriptions reads at its start."""

    partition_streams: int = Field(
        default=256, ge=1, description="How many listen streams a partition may have at one endpoint, over all edges."
    )
    edge_lost: Seconds = Field(
        default=20.0, gt=0, description="How long an edge may be silent, on a proven link, and its streams still count."
    )
    subscriptions_sweep: Seconds = Field(
        default=5.0, gt=0, description="How often what is left of edges that are gone is deleted."
    )
    subscriptions_concurrency: int = Field(
        default=64, ge=1, description="How many questions subscriptions answers at once."
    )
