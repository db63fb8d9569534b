"""Whether an edge may serve its address to whoever reaches it."""

from __future__ import annotations

from mcpfleet.process.address import is_loopback
from mcpfleet.process.settings import host_and_port


def refuse_exposed(bind: str, mode: str, *, allow_anonymous: bool) -> str | None:
    """Refuse to serve callers without credentials beyond this host, unless the operator said so.

    Args:
        bind: MCPFLEET_BIND, `host:port` or `[IPv6]:port`; no host is every address.
        mode: MCPFLEET_AUTHORIZATION.
        allow_anonymous: MCPFLEET_ALLOW_ANONYMOUS.

    Returns:
        The sentence for the operator, which names the settings; None where serving is fine.
    """
    if mode != "none" or allow_anonymous or is_loopback(host_and_port(bind)[0]):
        return None
    return (
        f"MCPFLEET_BIND: {bind} can be reached from other hosts, and MCPFLEET_AUTHORIZATION=none admits everyone: "
        "bind to 127.0.0.1, or set MCPFLEET_ALLOW_ANONYMOUS=true where something in front decides who may call"
    )
