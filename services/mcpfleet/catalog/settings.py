"""The catalog's settings."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.process.settings import Bytes, ProcessSettings, Seconds
from mcpfleet.store.settings import StoreSettings

_MEBIBYTE: Final = 1024 * 1024


class CatalogSettings(EndpointSettings, StoreSettings, ProcessSettings):
    """What the catalog reads at its start."""

    catalog_revision: int = Field(
        default=0, ge=0, description="Of the catalog's settings: a lower one never overwrites what a higher one merged."
    )
    catalog_sweep: Seconds = Field(default=2.0, gt=0, description="Between two looks for what changed.")
    catalog_charge: Seconds = Field(
        default=30.0, gt=0, description="After the last replica with them, settings of equal revision stay in force."
    )
    catalog_concurrency: int = Field(default=64, ge=1, description="Questions that a catalog answers at once.")
    worker_lost: Seconds = Field(default=10.0, gt=0, description="Silence of a worker, on a proven link, that ends it.")
    linger: Seconds = Field(default=600.0, gt=0, description="How long a pool without workers stays listed.")
    manifest_limit: Bytes = Field(default=4 * _MEBIBYTE, gt=0, description="Size of an announced manifest.")
    snapshot_limit: Bytes = Field(default=4 * _MEBIBYTE, gt=0, description="Size of an endpoint's definitions.")
    pool_workers: int = Field(default=1000, ge=1, description="Workers that one pool may announce.")
    pool_manifests: int = Field(default=8, ge=1, description="Different manifests that one pool may announce at once.")
