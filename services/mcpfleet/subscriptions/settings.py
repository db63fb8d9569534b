"""The settings of subscriptions."""

from __future__ import annotations

from pydantic import Field

from mcpfleet.process.settings import ProcessSettings, Seconds
from mcpfleet.store.settings import StoreSettings


class SubscriptionsSettings(StoreSettings, ProcessSettings):
    """The settings that subscriptions reads at its start."""

    partition_streams: int = Field(
        default=256, ge=1, description="How many listen streams a partition may have at one endpoint, over all edges."
    )
    edge_lost: Seconds = Field(
        default=20.0,
        gt=0,
        description="How long an edge may be silent on a proven link before its streams count no more.",
    )
    session_idle: Seconds = Field(
        default=3600.0,
        gt=0,
        description="How long a session may go without a request before it ends. Its client then begins a new one.",
    )
    session_lasts: Seconds = Field(
        default=7 * 86400.0, gt=0, description="How long a session may last, however often it is used."
    )
    owner_sessions: int = Field(
        default=10_000,
        ge=1,
        description="How many sessions a caller may have at one endpoint. Beyond it, the longest unused ones end. "
        "Callers without credentials count as one caller.",
    )
    session_uris: int = Field(default=256, ge=1, description="How many URIs a session may subscribe to.")
    grant_lasts: Seconds = Field(
        default=60.0,
        gt=0,
        description="How long a session may hear of a URI before authorization is asked again, at most.",
    )
    grant_total: Seconds = Field(
        default=86_400.0,
        gt=0,
        description="How long a session may hear of a URI in all. Then the session ends.",
    )
    subscriptions_sweep: Seconds = Field(
        default=5.0, gt=0, description="How often rows of lost edges and ended sessions are deleted."
    )
    subscriptions_concurrency: int = Field(
        default=64, ge=1, description="How many requests subscriptions answers at once."
    )
