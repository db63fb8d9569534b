"""The trace of a piece of work, as `traceparent` and `tracestate` tell it (W3C Trace Context), and its sampling.

Every call makes one, so ids stay text on their way; only recording a span makes numbers of them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from random import getrandbits
from typing import Final, NamedTuple

TRACESTATE_LIMIT: Final = 512
"""Characters of `tracestate` to hand on; a longer one is left out whole (Trace Context, 3.3.1.5)."""

# A later version may append fields after the flags; version 00 may not, and ff is none (Trace Context, 3.2.2).
_TRACEPARENT: Final = re.compile(
    r"(?!ff)(?!00-.{52}.)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]([0-9a-f])(?:-.*)?"
)
_SAMPLED: Final = frozenset("13579bdf")
_MEMBER: Final = r"[ \t]*(?:[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\--<>-~]{0,255}[!-+\--<>-~])?[ \t]*"
_TRACESTATE: Final = re.compile(rf"{_MEMBER}(?:,{_MEMBER}){{0,31}}")


_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_BAGGAGE_VALUE: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_PROPERTY: Final = rf"[ \t]*;[ \t]*{_WORD}(?:[ \t]*=[ \t]*{_BAGGAGE_VALUE})?"
_BAGGAGE: Final = re.compile(rf"[ \t]*{_WORD}[ \t]*=[ \t]*{_BAGGAGE_VALUE}(?:{_PROPERTY})*[ \t]*")
BAGGAGE_LIMIT: Final = 8_192
"""Bytes of `baggage` to hand on; a longer one is ignored (Baggage, 3.3.2)."""
_BAGGAGE_MEMBERS: Final = 64


def checked_baggage(text: object) -> str | None:
    """Return W3C baggage as it came; None if it is malformed or too large: it is ignored, not refused (M23, X75)."""
    if not isinstance(text, str) or not 0 < len(text) <= BAGGAGE_LIMIT:
        return None
    members = text.split(",")
    if len(members) > _BAGGAGE_MEMBERS or not all(map(_BAGGAGE.fullmatch, members)):
        return None
    return text.strip(" \t")


class TraceContext(NamedTuple):
    """One point of a trace: the span that later work is a child of."""

    trace_id: str
    """32 lower-case hexadecimal digits, not all zero."""
    span_id: str
    """16 lower-case hexadecimal digits, not all zero."""
    sampled: bool
    """Whether the spans of this trace are recorded: the edge's decision."""
    state: str = ""
    """`tracestate` as it came; empty if there was none."""

    @classmethod
    def parse(cls, traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
        """Read the two headers; None if `traceparent` is absent or malformed (M23: ignored, not refused).

        A malformed `tracestate` is left out and costs the trace nothing.
        """
        if not traceparent or (match := _TRACEPARENT.fullmatch(traceparent)) is None:
            return None
        trace_id, span_id, flags = match.groups()
        return cls(trace_id, span_id, flags in _SAMPLED, _checked_state(tracestate) if tracestate else "")

    @classmethod
    def fresh(cls, *, sampled: bool) -> TraceContext:
        """Begin a trace with random ids.

        Its span id belongs to no recorded span. So a trace to be recorded begins with `Tracer.start(parent=None)`
        instead.
        """
        # Not zero, which would be no id. Ids are labels, not secrets: the quick generator is good enough.
        return cls("%032x" % (getrandbits(128) or 1), "%016x" % (getrandbits(64) or 1), sampled)

    def header(self) -> str:
        """Return the text of `traceparent`, in version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def resampled(self, *, sampled: bool) -> TraceContext:
        """Return the same point of the same trace under another sampling decision."""
        return self if sampled is self.sampled else self._replace(sampled=sampled)


current: ContextVar[TraceContext | None] = ContextVar("mcpfleet_trace", default=None)
"""The trace of the present work, set by `with span:`; log lines carry its ids."""


def is_recorded() -> bool:
    """Return whether the present work is recorded, so that its questions to others need spans of their own."""
    trace = current.get()
    return trace is not None and trace.sampled


def _checked_state(tracestate: str) -> str:
    """Return the state if it is well formed: it goes on into the headers of other protocols."""
    if len(tracestate) > TRACESTATE_LIMIT or _TRACESTATE.fullmatch(tracestate) is None:
        return ""
    return tracestate.strip(" \t")


_RANDOM_DIGITS = 14
"""The last 56 bits of a trace id are random (Trace Context level 2), and decide alike in every process."""
_RANDOM_RANGE = 1 << (4 * _RANDOM_DIGITS)


@dataclass(frozen=True, slots=True)
class TraceSampling:
    """The rules that decide which traces are recorded.

    A caller outside the trusted networks keeps its trace's id, so that its spans and ours are one trace. Its sampled
    flag decides nothing: else any caller could have all its calls recorded.
    """

    ratio: float
    """The share of traces that are recorded, from 0 (none) to 1 (all)."""
    trusted: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    """Networks whose callers' sampled flag counts."""

    @classmethod
    def of(cls, ratio: float, networks: Iterable[str] = ()) -> TraceSampling:
        """Make the rules from settings; raises ValueError that names an invalid ratio or network."""
        if not 0 <= ratio <= 1:
            raise ValueError(f"a sampling ratio is from 0 to 1, not {ratio}")
        return cls(ratio, tuple(ipaddress.ip_network(network) for network in networks))

    def trusts(self, address: str) -> bool:
        """Return whether the flag of a caller at this IP address counts; asked once a connection."""
        if not self.trusted:
            return False
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        # A socket for both families shows IPv4 callers as ::ffff:a.b.c.d.
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self.trusted)

    def parent(self, claimed: TraceContext | None, *, trusted: bool) -> TraceContext | None:
        """Return the parent of the span that serves a request which claims this trace.

        None means that a new trace begins here and is recorded. Otherwise the answer's `sampled` is the decision.
        """
        if claimed is None:
            begun = TraceContext.fresh(sampled=False)
            return None if self._records(begun.trace_id) else begun
        return claimed if trusted else claimed.resampled(sampled=self._records(claimed.trace_id))

    def _records(self, trace_id: str) -> bool:
        return int(trace_id[-_RANDOM_DIGITS:], 16) >= (1 - self.ratio) * _RANDOM_RANGE
