"""Make the Secrets of a fleet, with new passwords, keys and certificates, and print them for `kubectl apply -f -`.

It is for a cluster without a secret store: the printed Secrets are the only copy. Run it once for a namespace. A second
run makes other Secrets, with which running processes can no longer log in.
"""

from __future__ import annotations

import argparse
import base64
import datetime as dt
import ipaddress
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mcpfleet.contracts.permissions import password_variable, users

SERVERS = 3
"""NATS servers of the component."""
YEARS = 2
"""How long the certificates are good for."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the Secrets."""
    parser = argparse.ArgumentParser(description="Print the Secrets of a fleet, for kubectl apply -f -.")
    parser.add_argument("--pools", required=True, help="the pools, separated by commas, as for `mcpfleet nats`")
    parser.add_argument("--store", help="the database's URL; by default that of the component")
    options = parser.parse_args(arguments)
    pools = [pool.strip() for pool in options.pools.split(",") if pool.strip()]
    items = [secret(name, data) for name, data in contents(pools, options.store).items()]
    json.dump({"apiVersion": "v1", "kind": "List", "items": items}, sys.stdout, indent=2)


def contents(pools: Sequence[str], store: str | None = None) -> dict[str, dict[str, str]]:
    """Every Secret's data, by its name."""
    # NATS reads its passwords as values of its own language, in which digits alone would be a number.
    passwords = {user: "p" + secrets.token_hex(24) for user in users(pools)}
    database = secrets.token_hex(24)
    return {
        "nats-passwords": {password_variable(user): password for user, password in passwords.items()},
        **{f"nats-{user}": {"password": password} for user, password in passwords.items()},
        "nats-tls": certificates(),
        "seal-keys": {"keys": base64.b64encode(secrets.token_bytes(32)).decode() + "\n"},
        "postgresql": {"password": database},
        "store": {"url": store or f"postgresql://mcpfleet:{database}@postgresql:5432/mcpfleet"},
    }


def secret(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    """One Secret, as Kubernetes reads it."""
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": encoded}


def certificates() -> dict[str, str]:
    """A certificate for the NATS servers, in the form that cert-manager writes, and the authority that signed it."""
    authority = ec.generate_private_key(ec.SECP256R1())
    key = ec.generate_private_key(ec.SECP256R1())
    root = _name("mcpfleet NATS authority")
    signed_root = (
        _certificate(root, root, authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority, hashes.SHA256())
    )
    # The servers' names for clients and for each other, and this machine's name for forwarded ports.
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in ("nats", "localhost")]
    names += [x509.DNSName(f"nats-{number}.nats-routes") for number in range(SERVERS)]
    names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    signed = (
        _certificate(_name("nats"), root, key)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(uses, critical=False)
        .sign(authority, hashes.SHA256())
    )
    # The authority's own key is not kept: the next certificate has a new one.
    return {"ca.crt": _pem(signed_root), "tls.crt": _pem(signed), "tls.key": _key_pem(key)}


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=365 * YEARS))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


if __name__ == "__main__":
    main()
