"""What one version of an application offers: definitions, each named by the digest of its exact bytes."""

from __future__ import annotations

import hashlib
import re
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field
from pydantic_core import to_json

from mcpfleet.contracts.base import Message

DIGEST_LENGTH = 32
"""Hexadecimal digits of SHA-256 that name a thing on the bus (128 bits)."""

POOL_PATTERN = r"^[a-z0-9-]{1,63}$"
"""The form of pool and endpoint names: they are tokens of subjects and of NATS users."""


def digest_of(body: bytes) -> str:
    """Name the exact bytes: the first 32 hexadecimal digits of their SHA-256."""
    return hashlib.sha256(body).hexdigest()[:DIGEST_LENGTH]


def default_pool(target: str) -> str:
    """Name the pool after its application: the file's or the module's last name, as a pool's name may be written."""
    path = target.partition(":")[0]
    last = Path(path).stem if path.endswith(".py") else path.rpartition(".")[2]
    return re.sub(r"[^a-z0-9-]+", "-", last.lower()).strip("-")[:63] or "application"


class Definition(Message):
    """One tool as a worker declares it; calls go by its digest, so equal definitions share their calls."""

    # What a newer worker declares stays, though nobody here knows it: the digest names all of it.
    model_config = ConfigDict(extra="allow")

    kind: Literal["tool"]
    name: str = Field(min_length=1, max_length=128)
    wire: dict[str, Any]
    """The declaration as 2026-07-28's lists show it: name, title, description, inputSchema, …"""
    timeout: float = Field(default=60.0, gt=0)
    """Seconds that a call may take, whatever progress it reports."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """Whether a client that leaves stops the work (D12)."""
    asks: tuple[str, ...] = ()
    """What the handler may ask of the client, for example `elicitation.form` (D16)."""
    scopes: tuple[str, ...] = ()
    """The scopes that a caller's token needs."""

    @cached_property
    def body(self) -> bytes:
        """The exact bytes that the digest names: canonical JSON, keys sorted."""
        return to_json(_sorted(self.model_dump(mode="json")))

    @cached_property
    def digest(self) -> str:
        """The name of this definition on the bus."""
        return digest_of(self.body)


class Manifest(Message):
    """What one version of an application offers."""

    name: str = Field(min_length=1)
    """The application's own name, for `serverInfo`."""
    version: str = Field(min_length=1)
    title: str | None = None
    instructions: str | None = None
    definitions: tuple[Definition, ...] = ()

    @cached_property
    def body(self) -> bytes:
        """The exact bytes that are announced and stored: canonical JSON, keys sorted."""
        return to_json(_sorted(self.model_dump(mode="json")))

    @cached_property
    def digest(self) -> str:
        """The name of this manifest in announcements."""
        return digest_of(self.body)


def _sorted(value: Any) -> Any:
    """Order keys at every depth, so that equal declarations have equal bytes in every process."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value
