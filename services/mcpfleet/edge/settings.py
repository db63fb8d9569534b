"""The edge's settings."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from mcpfleet.contracts.access import AccessSettings, WebUrl
from mcpfleet.contracts.call import MESSAGE_ROOM, FetchSettings
from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.contracts.manifest import Rate
from mcpfleet.process.settings import Bind, Bytes, Names, ProcessSettings, Seconds
from mcpfleet.telemetry.trace import TraceSampling
from mcpfleet.wire.scan import MAX_VALUES

_NO_RATE: Final = "none"


def rate_of(text: str) -> Rate | None:
    """Read `calls/seconds`, or `none`.

    Raises:
        ValueError: it is neither.
    """
    if text == _NO_RATE:
        return None
    calls, _, seconds = text.partition("/")
    try:
        return Rate(calls=int(calls), seconds=float(seconds))
    except ValueError:
        raise ValueError("is calls/seconds, for example 600/60, or none") from None


def _rate(text: str) -> str:
    rate_of(text)
    return text


RateText = Annotated[str, AfterValidator(_rate)]
"""How often something may happen, as `calls/seconds`."""


class EdgeSettings(AccessSettings, EndpointSettings, FetchSettings, ProcessSettings):
    """The settings of an edge."""

    bind: Bind = Field("127.0.0.1:8000", description="host:port for clients; port 0 takes a free one")
    public_hosts: Names = Field((), description="host names in clients' URLs; those of loopback need no mention")
    public_url: WebUrl = Field(
        "", description="the fleet's public name, for example https://mcp.example.com; endpoints' paths are appended"
    )
    authorization_servers: Names = Field((), description="where clients get tokens; MCPFLEET_ISSUER if none is named")
    scopes: Names = Field((), description="scopes that clients ask for first; all that tools name if none is named")
    allow_anonymous: bool = Field(False, description="serve everybody on an address that others can reach")

    max_connections: int = Field(
        16_384,
        description="clients' connections at once, as far as the limit of descriptors allows; more wait to be accepted",
        gt=0,
    )
    max_request: Bytes = Field(7 * 1024 * 1024, description="largest body of a request")
    max_values: int = Field(
        MAX_VALUES, description="values and keys of a request's body; four characters of numbers count as one", gt=0
    )
    head_timeout: Seconds = Field(
        10.0, gt=0, description="longest time that a request's head may take to arrive, and a new connection's first"
    )
    read_timeout: Seconds = Field(30.0, gt=0, description="longest time that a request's body may take to arrive")
    admission_entries: int = Field(10_000, description="verdicts kept in memory", gt=0)
    authority_silence: Seconds = Field(
        5.0, gt=0, description="silence on a proven link after which authorization is asked what was revoked"
    )
    rate_requests: RateText = Field("none", description="requests of a partition to an endpoint, as calls/seconds")
    rate_tools: RateText = Field("6000/60", description="tool calls of a partition to an endpoint, as calls/seconds")
    rate_completions: RateText = Field("6000/60", description="completions of a partition to an endpoint")
    rate_anonymous: RateText = Field("none", description="tool calls, and completions, of all callers without a name")
    rate_unknown: Literal["allow", "refuse"] = Field(
        "allow", description="what becomes of calls whose limit cannot be asked for"
    )
    rate_wait: Seconds = Field(1.0, gt=0, description="longest wait for an answer about a limit")
    rate_entries: int = Field(10_000, description="limits that an edge takes from at once", gt=0)
    snapshot_lasts: Seconds = Field(10.0, description="age from which a snapshot in use is confirmed with the catalog")
    heal_interval: Seconds = Field(15.0, gt=0, description="between two comparisons with the catalog's number")
    list_ttl: Seconds = Field(5.0, description="how long a client may keep a list (ttlMs)")
    discover_ttl: Seconds = Field(60.0, description="how long a client may keep what server/discover told (ttlMs)")

    queue_size: int = Field(256, description="calls that may wait for room in one pool", gt=0)
    queue_wait: Seconds = Field(5.0, gt=0, description="longest wait for room in a pool")
    repeats_waiting: int = Field(1000, description="calls that may wait for the first one under their key", gt=0)
    probe_min: Seconds = Field(0.05, gt=0, description="shortest pause between two attempts of the first in line")
    probe_max: Seconds = Field(0.25, gt=0, description="longest pause between two attempts of the first in line")
    unaccepted_after: Seconds = Field(4.0, gt=0, description="after which a call that no worker accepted is uncertain")
    lost_after: Seconds = Field(
        6.0, gt=0, description="silence on a proven link after which a worker's calls are uncertain"
    )
    deadline_grace: Seconds = Field(1.0, description="beyond a tool's timeout, for the worker to say that it is over")
    notices_kept: int = Field(16, description="progress reports and log messages kept for a slow client", gt=0)

    silent_after: Seconds = Field(15.0, gt=0, description="silence after which a call's answer becomes a stream")
    keepalive: Seconds = Field(15.0, gt=0, description="between two comments on a silent stream")
    write_timeout: Seconds = Field(30.0, gt=0, description="after which a client that does not read is cut off")

    max_streams: int = Field(8192, description="listen streams of this edge, open or about to be", gt=0)
    stream_keys: int = Field(256, description="different URIs, or tasks, that one listen stream may name", gt=0)
    stream_pending: int = Field(128, description="changes that may wait for one listen stream; more end it", gt=0)
    stream_lasts: Seconds = Field(86_400.0, gt=0, description="longest life of a listen stream; up to a tenth less")
    permission_lasts: Seconds = Field(60.0, gt=0, description="longest time that a stream goes on without asking again")
    catch_up_rate: int = Field(500, description="hints a second after a gap, for all streams of this edge", gt=0)
    catch_up_lasts: Seconds = Field(60.0, gt=0, description="after which catching up after a gap ends")
    streams_leased: Seconds = Field(5.0, gt=0, description="between two leases of what is counted for this edge")
    watched_room: Bytes = Field(64 * 1024 * 1024, description="memory for the URIs that listen streams watch")
    watched_tasks: int = Field(10_000, description="different tasks that listen streams of this edge watch", gt=0)
    watched_stated: Seconds = Field(15.0, gt=0, description="between two statements to pools of what streams watch")
    read_checked_within: Seconds = Field(
        5.0, gt=0, description="how long a resource may take to say whether a listener may read it"
    )
    read_checks_rate: int = Field(
        50, description="readings a second by which an edge renews what its listeners may hear", gt=0
    )
    read_checks_kept: int = Field(
        10_000, description="decisions on what a caller may hear that are kept while nobody listens", gt=0
    )
    task_shown_within: Seconds = Field(
        5.0, gt=0, description="how long a sanitizer may take to clear a task's result for who reads it"
    )
    watched_keys: int = Field(2000, description="resources of an endpoint that are heard by themselves", gt=0)

    session_kept: Seconds = Field(10.0, gt=0, description="how long an edge goes by what it knows of a session")
    session_entries: int = Field(10_000, description="sessions of clients of 2025 kept in memory", gt=0)
    session_checked: Seconds = Field(
        60.0, gt=0, description="between two looks at a session that has a stream or runs a request"
    )
    answer_wait: Seconds = Field(
        300.0, gt=0, description="how long a client of 2025 may take to answer what it is asked within a call"
    )

    arriving_room: Bytes = Field(
        32 * 1024 * 1024, description="memory for small bodies that still arrive; beyond it their callers must be known"
    )
    request_room: Bytes = Field(64 * 1024 * 1024, description="memory for large bodies of requests that are served")
    result_room: Bytes = Field(64 * 1024 * 1024, description="memory for large results on their way to clients")
    large_body: Bytes = Field(
        256 * 1024,
        description="largest body that is read before its token is judged; it takes none of MCPFLEET_REQUEST_ROOM",
    )
    result_limit: Bytes = Field(7 * 1024 * 1024, description="largest result that is fetched from a worker")
    frame_limit: Bytes = Field(256 * 1024, description="largest report, question or error that a worker may send")

    seal_keys: str = Field("", description="file of the keys that seal request state and cursors, the newest first")
    seal_keys_reread: Seconds = Field(30.0, gt=0, description="how often that file is read again")
    seal_keys_adopted: Seconds = Field(120.0, description="how long a new key is known before it seals")
    state_lasts: Seconds = Field(3600.0, gt=0, description="how long a client may take to answer a handler's questions")
    state_limit: Bytes = Field(128 * 1024, description="largest requestState that is taken from a client")
    max_rounds: int = Field(10, description="times that a handler may ask its caller", gt=0)
    cursor_lasts: Seconds = Field(3600.0, gt=0, description="how long a cursor of a list is good")
    page_size: int = Field(0, description="entries of a list's page; 0 gives whole lists", ge=0)

    audit: bool = Field(True, description="log a line for each call: who, what, outcome, duration, trace")
    cors_origins: Names = Field((), description="origins whose web pages may call, for example https://app.example.com")
    strict_headers: bool = Field(False, description="refuse Mcp-Param headers that the tool does not declare")
    hide_uncovered: bool = Field(False, description="hide what a caller's scopes do not cover instead of refusing it")

    lame: Seconds = Field(10.0, description="how long a draining edge still serves what arrives")
    drain_grace: Seconds = Field(
        2.0, description="how long a draining edge stays after its last call has ended, for what its client asks next"
    )
    unready_after: Seconds = Field(30.0, gt=0, description="time without a bus after which an edge is not ready")
    trusted_networks: Names = Field((), description="networks whose clients' sampling flag counts")
    sample_ratio: float = Field(1.0, ge=0, le=1, description="share of requests that are traced")

    @field_validator("trusted_networks")
    @classmethod
    def _are_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        TraceSampling.of(1.0, networks)
        return networks

    @model_validator(mode="after")
    def _bodies_fit_messages(self) -> Self:
        if self.max_request + MESSAGE_ROOM > self.bus_max_payload:
            raise ValueError("MCPFLEET_MAX_REQUEST: must be 64 KiB less than MCPFLEET_BUS_MAX_PAYLOAD, at least")
        return self
