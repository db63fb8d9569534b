"""Whether an address may be served to whoever reaches it: a rule that edges and authorization must see alike."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def refuse_exposed(bind: str, mode: str, *, allow_anonymous: bool) -> str | None:
    """Refuse to serve callers without credentials beyond this host, unless the operator said so.

    Args:
        bind: MCPFLEET_BIND, `host:port`, `[IPv6]:port` or `unix:path`; no host is every address.
        mode: MCPFLEET_AUTHORIZATION.
        allow_anonymous: MCPFLEET_ALLOW_ANONYMOUS.

    Returns:
        The sentence for the operator, which names the settings; None where serving is fine.
    """
    if mode != "none" or allow_anonymous or is_loopback(bind):
        return None
    return (
        f"MCPFLEET_BIND: {bind} can be reached from other hosts, and MCPFLEET_AUTHORIZATION=none admits everyone: "
        "bind to 127.0.0.1, or set MCPFLEET_ALLOW_ANONYMOUS=true where something in front decides who may call"
    )


def is_loopback(bind: str) -> bool:
    """Whether only this host reaches the address; a name counts as reachable, but for `localhost`."""
    if bind.startswith("unix:"):
        return True
    host = _host(bind)
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _host(bind: str) -> str:
    """Split off the port; an IPv6 address without brackets has none."""
    if bind.startswith("["):
        return bind[1:].partition("]")[0]
    host, _, _ = bind.partition(":")
    return bind if bind.count(":") > 1 else host
