"""The edge's decision which traces are recorded: rules over values, nothing else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from mcpfleet.telemetry.trace import TraceContext

_RANDOM_DIGITS = 14
"""The last 56 bits of a trace id are random (Trace Context level 2), and decide alike in every process."""
_RANDOM_RANGE = 1 << (4 * _RANDOM_DIGITS)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which traces are recorded.

    A caller outside the trusted networks keeps its trace's id, so that its spans and ours are one trace, but its
    sampled flag decides nothing: else any caller could have all its calls recorded.
    """

    ratio: float
    """The share of traces that are recorded, from 0 (none) to 1 (all)."""
    trusted: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    """Networks whose callers' sampled flag counts."""

    @classmethod
    def of(cls, ratio: float, networks: Iterable[str] = ()) -> Sampling:
        """Make the rules from settings; raises ValueError that names a ratio or a network that is none."""
        if not 0 <= ratio <= 1:
            raise ValueError(f"a sampling ratio is from 0 to 1, not {ratio}")
        return cls(ratio, tuple(ipaddress.ip_network(network) for network in networks))

    def trusts(self, address: str) -> bool:
        """Whether the flag of a caller at this IP address counts; asked once a connection."""
        if not self.trusted:
            return False
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            return False
        # A socket that hears both families shows IPv4 callers as ::ffff:a.b.c.d.
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self.trusted)

    def parent(self, claimed: TraceContext | None, *, trusted: bool) -> TraceContext | None:
        """The parent of the span that serves a request which claims this trace.

        None means that a new trace begins here and is recorded. Otherwise the answer's `sampled` is the decision.
        """
        if claimed is None:
            begun = TraceContext.fresh(sampled=False)
            return None if self._records(begun.trace_id) else begun
        return claimed if trusted else claimed.resampled(sampled=self._records(claimed.trace_id))

    def _records(self, trace_id: str) -> bool:
        return int(trace_id[-_RANDOM_DIGITS:], 16) >= (1 - self.ratio) * _RANDOM_RANGE
