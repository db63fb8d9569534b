"""The proxies of docs/proxies.md, run as the page configures them, in front of a fleet of real processes."""

from __future__ import annotations

import re
import runpy
import shutil
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import anyio

from mcpfleet.cli.child import Child
from mcpfleet.testing.fleet import Fleet
from tests.kit.ports import free_port
from tests.kit.tree import ROOT
from tests.kit.waiting import until

PAGE = ROOT / "docs" / "proxies.md"
MAKE_SECRETS = ROOT / "deploy" / "k8s" / "make_secrets.py"
_LISTENS_WITHIN = 10.0
_ENDS_WITHIN = 5.0
_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin"
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Proxy:
    """How one proxy is run."""

    name: str
    """The name of its program, and of its Debian package."""
    block: str
    """The language of its block on the page."""
    command: Sequence[str]
    """Runs it in the foreground; `{file}` is its configuration, `{folder}` is its own to write into."""
    beside: str = ""
    """Lines that a test adds in front of the page's configuration, so that it writes nowhere else."""


NGINX = Proxy("nginx", "nginx", ("-c", "{file}", "-g", "daemon off; pid {folder}/pid; error_log {folder}/error.log;"))
HAPROXY = Proxy("haproxy", "haproxy", ("-db", "-f", "{file}"))
CADDY = Proxy(
    "caddy",
    "caddyfile",
    ("run", "--adapter", "caddyfile", "--config", "{file}"),
    "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n\tstorage file_system {folder}\n}\n",
)
PROXIES = (NGINX, HAPROXY, CADDY)


@dataclass(frozen=True)
class Front:
    """A running proxy in front of two edges."""

    fleet: Fleet
    url: str
    """The fleet's endpoint, as clients know it."""
    trust: ssl.SSLContext
    """Knows the proxy's certificate."""


def configuration(proxy: Proxy) -> str:
    """The proxy's one block on the page."""
    [found] = re.findall(rf"^```{proxy.block}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


@asynccontextmanager
async def behind(
    proxy: Proxy, app: Path, folder: Path, *, idle: int = 60, environment: Mapping[str, str] = NO_SETTINGS
) -> AsyncIterator[Front]:
    """Run an application on two edges behind a proxy for the length of a block.

    Args:
        proxy: which.
        app: the application.
        folder: where the proxy writes.
        idle: seconds of silence that it allows, 60 on the page.
        environment: settings of the fleet.
    """
    for name, text in runpy.run_path(str(MAKE_SECRETS))["certificates"]().items():
        (folder / name).write_text(text)
    (folder / "tls.pem").write_text((folder / "tls.crt").read_text() + (folder / "tls.key").read_text())
    port, admin = free_port(), free_port()
    # Each edge is a host of its own, with the same admin port, as in a cluster.
    hosts = {f"edge {number}": f"127.0.0.{number}" for number in (1, 2)}
    own = {
        edge: {"MCPFLEET_BIND": f"{host}:0", "MCPFLEET_ADMIN_BIND": f"{host}:{admin}"} for edge, host in hosts.items()
    }
    async with Fleet(app, edges=2, environment=environment, own=own) as fleet:
        text = _placed(configuration(proxy), fleet, folder, port, admin)
        text = re.sub(r"((?:proxy_read_timeout|timeout client|timeout server) )60s", rf"\g<1>{idle}s", text)
        async with _running(proxy, text, folder, port):
            trust = ssl.create_default_context(cafile=folder / "ca.crt")
            yield Front(fleet, f"https://localhost:{port}/mcp", trust)


def _placed(text: str, fleet: Fleet, folder: Path, port: int, admin: int) -> str:
    """The page's configuration with this machine's addresses, ports and folders."""
    for number, url in enumerate(fleet.urls, 1):
        text = text.replace(f"edge-{number}:8000", urlsplit(url).netloc)
    text = text.replace("mcp.example.com {", f"https://localhost:{port} {{").replace("mcp.example.com", "localhost")
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("bind :443", f"bind 127.0.0.1:{port}")
    return text.replace("9090", str(admin)).replace("/var/log/nginx", str(folder)).replace("/etc/mcp", str(folder))


@asynccontextmanager
async def _running(proxy: Proxy, text: str, folder: Path, port: int) -> AsyncIterator[None]:
    """Run a proxy by its configuration; where the block fails, the proxy's log is added to the error."""
    program = shutil.which(proxy.name, path=_PROGRAMS)
    assert program is not None, f"{proxy.name} is missing: install Debian's package of that name"
    file, log = folder / f"{proxy.name}.conf", folder / "proxy.log"
    file.write_text(proxy.beside.replace("{folder}", str(folder)) + text)
    arguments = [part.format(file=file, folder=folder) for part in proxy.command]
    child = Child(proxy.name, [program, *arguments], {"HOME": str(folder)}, log=log)
    async with anyio.create_task_group() as tasks:
        await child.start()
        tasks.start_soon(child.listen)
        try:
            await _listens(child, port)
            yield
        except BaseException as error:
            error.add_note(f"== {proxy.name}\n{log.read_text()}")
            raise
        finally:
            await child.stop(_ENDS_WITHIN)


async def _listens(child: Child, port: int) -> None:
    """Wait until the proxy takes connections."""
    with anyio.fail_after(_LISTENS_WITHIN):
        while True:
            assert child.is_running, "the proxy ended: its log says why"
            try:
                stream = await anyio.connect_tcp("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.02)
                continue
            await stream.aclose()
            return


async def comes(file: Path) -> None:
    """Wait for a file that a handler writes."""
    await until(file.exists)
