"""NATS over TLS: whom a process takes for its server, and to whom it never tells a password."""

from __future__ import annotations

import runpy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import structlog

from mcpfleet.bus.nats import NatsConnector
from mcpfleet.bus.port import ConnectFailed
from mcpfleet.cli.embedded_nats import EmbeddedNats
from mcpfleet.process.settings import ProcessSettings

MAKE_SECRETS = Path(__file__).parents[3] / "deploy" / "k8s" / "make_secrets.py"


@asynccontextmanager
async def server(folder: Path, *, tls: bool) -> AsyncIterator[str]:
    """A server with a certificate for this machine, vouched for by `ca.crt`; the block gets its tls:// address."""
    for name, text in runpy.run_path(str(MAKE_SECRETS))["certificates"]().items():
        (folder / name).write_text(text)
    nats = EmbeddedNats(folder, [], ProcessSettings(), lambda _: "secret")
    if tls:
        nats._settings += f'tls {{cert_file: "{folder}/tls.crt", key_file: "{folder}/tls.key"}}\n'
    await nats.start()
    try:
        yield nats.url.replace("nats://", "tls://")
    finally:
        with anyio.CancelScope(shield=True):
            await nats.child.kill()


async def connect(url: str, authority: Path | None) -> None:
    settings = ProcessSettings(nats_url=url, nats_password="secret", nats_ca=str(authority or ""))  # type: ignore[arg-type]  # pydantic wraps it
    link = await NatsConnector(settings, user="edge", name="test", log=structlog.get_logger()).connect(lambda *_: None)
    assert link.lost.is_set() is False
    await link.close()


async def test_a_server_is_known_by_the_certificates_of_a_file(tmp_path: Path) -> None:
    async with server(tmp_path, tls=True) as url:
        await connect(url, tmp_path / "ca.crt")


async def test_a_server_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    async with server(tmp_path, tls=True) as url:
        with pytest.raises(OSError, match="certificate verify failed"):
            await connect(url, None)


async def test_no_password_is_told_to_a_server_without_tls(tmp_path: Path) -> None:
    """Otherwise an impostor would only have to say that it needs no TLS."""
    async with server(tmp_path, tls=False) as url:
        with pytest.raises((OSError, ConnectFailed), match="offers no TLS"):
            await connect(url, tmp_path / "ca.crt")


async def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed, match=r"MCPFLEET_NATS_CA: cannot read .*nowhere"):
        await connect("tls://127.0.0.1:1", tmp_path / "nowhere")
