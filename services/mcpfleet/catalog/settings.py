"""The catalog's settings."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.contracts.files import FileSettings
from mcpfleet.process.settings import Bytes, ProcessSettings, Seconds
from mcpfleet.store.settings import StoreSettings

_MEBIBYTE: Final = 1024 * 1024


class CatalogSettings(EndpointSettings, FileSettings, StoreSettings, ProcessSettings):
    """The settings that the catalog reads at its start."""

    catalog_revision: int = Field(
        default=0,
        ge=0,
        description="Raise it with each change of MCPFLEET_ENDPOINTS: a lower revision never overwrites a higher one.",
    )
    catalog_sweep: Seconds = Field(default=2.0, gt=0, description="How often the catalog looks for changes.")
    catalog_pause: Seconds = Field(
        default=0.2, description="The shortest time between two rebuilds, which bounds the cost of constant changes."
    )
    catalog_concurrency: int = Field(default=64, ge=1, description="How many requests a catalog answers at once.")
    worker_lost: Seconds = Field(
        default=10.0, gt=0, description="How long a worker may be silent on a proven link before it counts no more."
    )
    linger: Seconds = Field(default=600.0, gt=0, description="How long a pool without workers stays listed.")
    manifest_limit: Bytes = Field(
        default=4 * _MEBIBYTE, gt=0, description="The largest manifest that a worker may announce."
    )
    snapshot_limit: Bytes = Field(
        default=4 * _MEBIBYTE, gt=0, description="The largest size of an endpoint's definitions together."
    )
    files_kept: Seconds = Field(
        default=3600.0, description="How long the bytes of files are kept that no manifest names any more."
    )
    pool_workers: int = Field(default=1000, ge=1, description="How many workers one pool may have.")
    pool_manifests: int = Field(
        default=8, ge=1, description="How many different manifests one pool's workers may announce."
    )
