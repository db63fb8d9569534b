"""The edge's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.process.settings import Bind, Bytes, Names, ProcessSettings, Seconds


class EdgeSettings(EndpointSettings, ProcessSettings):
    """What an edge can be told."""

    bind: Bind = Field("127.0.0.1:8000", description="host:port for clients; port 0 takes a free one")
    public_hosts: Names = Field((), description="host names in clients' URLs; those of loopback need no mention")
    authorization: Literal["none"] = Field("none", description="how callers are admitted; none admits everybody")
    allow_anonymous: bool = Field(False, description="serve everybody on an address that others can reach")

    max_request: Bytes = Field(7 * 1024 * 1024, description="largest body of a request")
    read_timeout: Seconds = Field(30.0, description="longest time that a request's body may take to arrive")
    admission_entries: int = Field(10_000, description="verdicts kept in memory", gt=0)
    snapshot_lasts: Seconds = Field(10.0, description="age from which a snapshot in use is confirmed with the catalog")
    heal_interval: Seconds = Field(15.0, description="between two comparisons with the catalog's number")
    list_ttl: Seconds = Field(5.0, description="how long a client may keep a list (ttlMs)")
    discover_ttl: Seconds = Field(60.0, description="how long a client may keep what server/discover told (ttlMs)")

    queue_size: int = Field(256, description="calls that may wait for room in one pool", gt=0)
    queue_wait: Seconds = Field(5.0, description="longest wait for room in a pool")
    probe_min: Seconds = Field(0.05, description="shortest pause between two attempts of the first in line")
    probe_max: Seconds = Field(0.25, description="longest pause between two attempts of the first in line")
    unaccepted_after: Seconds = Field(4.0, description="after which a call that no worker accepted is uncertain")
    lost_after: Seconds = Field(6.0, description="silence on a proven link after which a worker's calls are uncertain")
    deadline_grace: Seconds = Field(1.0, description="beyond a tool's timeout, for the worker to say that it is over")
    progress_kept: int = Field(16, description="progress reports kept for a client that reads slowly", gt=0)

    silent_after: Seconds = Field(15.0, description="silence after which a call's answer becomes a stream")
    keepalive: Seconds = Field(15.0, description="between two comments on a silent stream")
    write_timeout: Seconds = Field(30.0, description="after which a client that does not read is cut off")
    stream_limit: Bytes = Field(1024 * 1024, description="largest result that commits no stream by itself")

    body_room: Bytes = Field(64 * 1024 * 1024, description="memory for large bodies, of requests and results together")
    body_large: Bytes = Field(256 * 1024, description="size from which a request's body counts as large")

    lame: Seconds = Field(10.0, description="how long a draining edge still serves what arrives")
    unready_after: Seconds = Field(30.0, description="time without a bus after which an edge is not ready")
    trusted_networks: Names = Field((), description="networks whose clients' sampling flag counts")
    sample_ratio: float = Field(1.0, ge=0, le=1, description="share of requests that are traced")
