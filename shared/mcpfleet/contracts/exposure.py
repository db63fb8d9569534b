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


def refuse_nameless(bind: str, mode: str, public_url: str) -> str | None:
    """Refuse to check tokens beyond this host without the name that they must be for (M61).

    Args:
        bind: MCPFLEET_BIND.
        mode: MCPFLEET_AUTHORIZATION.
        public_url: MCPFLEET_PUBLIC_URL.

    Returns:
        The sentence for the operator; None where serving is fine.
    """
    if mode == "none" or public_url or is_loopback(host_and_port(bind)[0]):
        return None
    return (
        f"MCPFLEET_PUBLIC_URL: must be set, for example to https://mcp.example.com: clients reach {bind} by a "
        "name that is not known here, and a token is good for the endpoints under that name alone"
    )
