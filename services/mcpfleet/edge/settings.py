"""The edge's settings."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator, model_validator

from mcpfleet.contracts.access import AccessSettings, WebUrl
from mcpfleet.contracts.call import MESSAGE_ROOM, FetchSettings
from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.contracts.manifest import Rate
from mcpfleet.process.settings import Bind, Bytes, Names, ProcessSettings, Seconds
from mcpfleet.telemetry.trace import TraceSampling

_NO_RATE: Final = "none"
_ORIGIN: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>\[[0-9a-f:.]+\]|[^/?#@:\[\]\s*]+)(?P<port>:[0-9]{1,5})?/?"
)
_USUAL: Final = {"http": ":80", "https": ":443"}
"""The ports that browsers leave out."""


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


def _as_sent(origin: str) -> str:
    """Return an origin as a browser sends it: in small letters, without its scheme's usual port and without a slash.

    Raises:
        ValueError: it is none. That is so for `*` and `null` too: any page can have them (M17).
    """
    parts = _ORIGIN.fullmatch(origin.lower())
    if parts is None or not origin.isascii():
        raise ValueError("an origin is scheme://host or scheme://host:port, in ASCII, and neither * nor null")
    scheme, host, port = parts["scheme"], parts["host"], parts["port"] or ""
    return f"{scheme}://{host}{'' if port == _USUAL.get(scheme) else port}"


def _origins(origins: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_as_sent, origins))


Origins = Annotated[Names, AfterValidator(_origins)]
"""Origins of web pages, in the form in which browsers send them."""


def _rate(text: str) -> str:
    rate_of(text)
    return text


RateText = Annotated[str, AfterValidator(_rate)]
"""How often something may happen, as `calls/seconds`."""


MAX_VALUES: Final = 100_000
"""The default of `mcpfleet.wire.scan`, which is not imported here: with MCP's types it delays each command by 0.2 s."""


class EdgeSettings(AccessSettings, EndpointSettings, FetchSettings, ProcessSettings):
    """The settings of an edge."""

    bind: Bind = Field("127.0.0.1:8000", description="host:port for clients; port 0 takes a free one")
    public_hosts: Names = Field((), description="further host names in clients' URLs, besides loopback's")
    public_url: WebUrl = Field(
        "", description="the fleet's public name, for example https://mcp.example.com; endpoints' paths are appended"
    )
    authorization_servers: Names = Field((), description="where clients get tokens; if empty, MCPFLEET_ISSUER")
    scopes: Names = Field((), description="scopes that clients request first; if empty, all that tools name")
    allow_anonymous: bool = Field(
        False, description="serve everybody without credentials, even on an address beyond this host"
    )

    max_connections: int = Field(
        16_384,
        description="the most connections of clients, within the limit of descriptors; others wait to be accepted",
        gt=0,
    )
    max_request: Bytes = Field(7 * 1024 * 1024, description="the largest body of a request")
    max_values: int = Field(
        MAX_VALUES,
        description="the most values and keys of a request's body; four characters of numbers count as one",
        gt=0,
    )
    head_timeout: Seconds = Field(
        10.0, gt=0, description="how long a request's head may take to arrive, a new connection's first head included"
    )
    read_timeout: Seconds = Field(30.0, gt=0, description="how long a request's body may take to arrive")
    admission_entries: int = Field(10_000, description="the most verdicts kept in memory", gt=0)
    authority_silence: Seconds = Field(
        5.0,
        gt=0,
        description="how long authorization may be silent on a proven link before it is asked for revocations",
    )
    rate_requests: RateText = Field("none", description="requests of a partition to an endpoint, as calls/seconds")
    rate_tools: RateText = Field("6000/60", description="tool calls of a partition to an endpoint, as calls/seconds")
    rate_completions: RateText = Field("6000/60", description="completions of a partition to an endpoint")
    rate_anonymous: RateText = Field("none", description="tool calls, and completions, of all callers without a name")
    rate_unknown: Literal["allow", "refuse"] = Field(
        "allow", description="what happens to calls whose limit cannot be checked"
    )
    rate_wait: Seconds = Field(1.0, gt=0, description="how long a call may wait for an answer about its limit")
    rate_entries: int = Field(10_000, description="the most limits whose tokens an edge holds at once", gt=0)
    snapshot_lasts: Seconds = Field(
        10.0, description="the age at which a snapshot in use is confirmed with the catalog"
    )
    heal_interval: Seconds = Field(
        15.0, gt=0, description="how often an edge compares its snapshot's number with the catalog's"
    )
    list_ttl: Seconds = Field(5.0, description="how long a client may keep a list (ttlMs)")
    discover_ttl: Seconds = Field(60.0, description="how long a client may keep the answer of server/discover (ttlMs)")

    queue_size: int = Field(256, description="the most calls that wait for room in one pool", gt=0)
    queue_wait: Seconds = Field(5.0, gt=0, description="how long a call may wait for room in a pool")
    repeats_waiting: int = Field(
        1000, description="the most repeats that wait for the first call under their key", gt=0
    )
    probe_min: Seconds = Field(
        0.05, gt=0, description="the shortest pause between two attempts of the first queued call"
    )
    probe_max: Seconds = Field(
        0.25, gt=0, description="the longest pause between two attempts of the first queued call"
    )
    unaccepted_after: Seconds = Field(
        4.0, gt=0, description="how long a call may go without a worker's confirmation before it is uncertain"
    )
    lost_after: Seconds = Field(
        6.0, gt=0, description="how long a worker may be silent on a proven link before its calls are uncertain"
    )
    deadline_grace: Seconds = Field(
        1.0, description="the time beyond a tool's timeout in which its worker must report the end"
    )
    notices_kept: int = Field(16, description="the most progress reports and log messages kept for a slow client", gt=0)

    silent_after: Seconds = Field(
        15.0, gt=0, description="how long a call may be silent before its answer becomes a stream"
    )
    keepalive: Seconds = Field(15.0, gt=0, description="how often a silent stream gets a comment")
    write_timeout: Seconds = Field(30.0, gt=0, description="how long a client may read nothing before it is cut off")

    max_streams: int = Field(8192, description="the most listen streams of this edge, open or about to open", gt=0)
    stream_keys: int = Field(
        256, description="the most URIs, and the most tasks, that one listen stream may name", gt=0
    )
    stream_pending: int = Field(128, description="the most changes that wait for one listen stream; more end it", gt=0)
    stream_lasts: Seconds = Field(86_400.0, gt=0, description="how long a listen stream may live, less up to a tenth")
    permission_lasts: Seconds = Field(
        60.0, gt=0, description="how long a stream's permission holds before it is renewed"
    )
    catch_up_rate: int = Field(
        500, description="how many notifications a second this edge sends its streams after a gap", gt=0
    )
    catch_up_lasts: Seconds = Field(60.0, gt=0, description="how long these notifications after a gap may take")
    streams_leased: Seconds = Field(
        5.0, gt=0, description="how often this edge renews the lease of its counted streams"
    )
    watched_room: Bytes = Field(64 * 1024 * 1024, description="memory for the URIs that listen streams watch")
    watched_tasks: int = Field(
        10_000, description="the most different tasks that listen streams of this edge watch", gt=0
    )
    watched_stated: Seconds = Field(15.0, gt=0, description="how often pools get a report of the watched URIs")
    read_checked_within: Seconds = Field(
        5.0, gt=0, description="how long a resource may take to decide whether a listener may read it"
    )
    read_checks_rate: int = Field(
        50, description="how many reads a second an edge uses to renew its listeners' permissions on URIs", gt=0
    )
    read_checks_kept: int = Field(
        10_000, description="the most decisions on URIs that are kept while nobody listens", gt=0
    )
    task_shown_within: Seconds = Field(
        5.0, gt=0, description="how long a sanitizer may take to clear a task's result for a reader"
    )
    watched_keys: int = Field(
        2000, description="how many resources of an endpoint have a NATS subscription of their own", gt=0
    )

    session_kept: Seconds = Field(10.0, gt=0, description="how long an edge uses its copy of a session")
    session_entries: int = Field(10_000, description="the most sessions of clients of 2025 kept in memory", gt=0)
    session_checked: Seconds = Field(
        60.0, gt=0, description="how often an edge checks a session that has a stream or runs a request"
    )
    answer_wait: Seconds = Field(
        300.0, gt=0, description="how long a client of 2025 may take to answer a question within a call"
    )

    arriving_room: Bytes = Field(
        32 * 1024 * 1024, description="memory for small bodies that still arrive; beyond it, callers are checked first"
    )
    request_room: Bytes = Field(64 * 1024 * 1024, description="memory for large bodies of running requests")
    result_room: Bytes = Field(64 * 1024 * 1024, description="memory for large results on their way to clients")
    file_room: Bytes = Field(64 * 1024 * 1024, description="memory for files of resources and skills, which are kept")
    large_body: Bytes = Field(
        256 * 1024,
        description="the largest body that is read before its token is checked; it takes none of MCPFLEET_REQUEST_ROOM",
    )
    result_limit: Bytes = Field(7 * 1024 * 1024, description="the largest result that is fetched from a worker")
    frame_limit: Bytes = Field(256 * 1024, description="the largest report, question or error that a worker may send")

    seal_keys: str = Field("", description="the file of keys that seal request states and cursors, the newest first")
    seal_keys_reread: Seconds = Field(30.0, gt=0, description="how often that file is read again")
    seal_keys_adopted: Seconds = Field(120.0, description="how long a new key is known before it seals")
    sealer: str = Field(
        "", description="module:factory of a sealer of your own, instead of the keys in that file", max_length=1_000
    )
    state_lasts: Seconds = Field(3600.0, gt=0, description="how long a client may take to answer a handler's questions")
    state_limit: Bytes = Field(128 * 1024, description="the largest requestState that a client may send")
    max_rounds: int = Field(10, description="how often a handler may ask its caller in one request", gt=0)
    cursor_lasts: Seconds = Field(3600.0, gt=0, description="how long a cursor of a list is good")
    page_size: int = Field(0, description="entries of a list's page; 0 gives whole lists", ge=0)

    audit: bool = Field(True, description="log a line for each call: caller, target, outcome, duration, trace")
    cors_origins: Origins = Field(
        (), description="origins whose web pages may call, for example https://app.example.com"
    )
    strict_headers: bool = Field(False, description="refuse Mcp-Param headers that the tool does not declare")
    hide_uncovered: bool = Field(False, description="hide what a caller's scopes do not cover instead of refusing it")

    lame: Seconds = Field(10.0, description="how long a draining edge still serves new requests")
    drain_grace: Seconds = Field(
        2.0, description="how long a draining edge stays after its last call has ended, for its client's next request"
    )
    unready_after: Seconds = Field(
        30.0, gt=0, description="how long an edge may be without NATS before it is not ready"
    )
    trusted_networks: Names = Field((), description="networks whose clients may decide with their sampling flag")
    sample_ratio: float = Field(1.0, ge=0, le=1, description="the share of requests that are traced")

    @property
    def public_names(self) -> tuple[str, ...]:
        """The hosts in clients' URLs besides loopback's, perhaps with ports."""
        return (*self.public_hosts, *filter(None, [urlsplit(self.public_url).netloc]))

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
