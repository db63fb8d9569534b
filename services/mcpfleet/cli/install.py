"""`mcpfleet install`: writes an endpoint or an application into the configuration of a desktop client, or prints it.

A client that speaks HTTP gets the URL itself. All else runs through `mcpfleet stdio`: applications, clients without
HTTP, and tokens, since no client reads a token from a file.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, get_args
from urllib.parse import urlsplit

import typer

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import DRAINED, FAILED, MODULE

ClientName = Literal["claude-code", "claude-desktop", "cursor", "vscode"]
CLIENTS: Final[tuple[ClientName, ...]] = get_args(ClientName)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PASSING: Final = {"archive-v0", "builds-v0", "environments-v2"}
"""Folders of uv's cache, whose interpreters may be gone tomorrow."""
_INDENT: Final = re.compile(r"\{\r?\n([ \t]+)")


@dataclass(frozen=True)
class _File:
    """Where a client reads its servers from."""

    title: str
    """The client's name, for people."""
    member: str
    """The member that has the servers by name."""
    speaks_http: bool
    has_type: bool
    """Whether a server has a member `type`."""


_FILES: Final[Mapping[str, _File]] = {
    "claude-code": _File("Claude Code", "mcpServers", speaks_http=True, has_type=True),
    "claude-desktop": _File("Claude Desktop", "mcpServers", speaks_http=False, has_type=False),
    "cursor": _File("Cursor", "mcpServers", speaks_http=True, has_type=False),
    "vscode": _File("VS Code", "servers", speaks_http=True, has_type=True),
}


def install(client: ClientName, where: str, *, name: str | None, token: str | None, prints: bool) -> int:
    """Make a server known to a client; returns the exit code.

    Args:
        client: the client.
        where: an endpoint's URL, or a target.
        name: the server's name in the client; None derives one.
        token: `@` and the file of a token.
        prints: print the configuration instead of writing it.

    Raises:
        ConfigurationError: a name or a target is wrong, or the client's file cannot be read, parsed or written.
    """
    name = _derived(where) if name is None else name
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"--name {name}: must have 1 to 64 characters of A-Z a-z 0-9 _ -")
    server = server_of(client, where, token)
    if client == "claude-code":
        return _tell_claude(_claude_command(name, server), prints=prints)
    if prints:
        typer.echo(_snippet(client, name, server))
        return DRAINED
    path = place_of(client)
    done = _write(client, path, name, server)
    typer.echo(f"{name} {done} in {path}; start {_FILES[client].title} again to use it")
    return DRAINED


def server_of(client: ClientName, where: str, token: str | None) -> dict[str, Any]:
    """Return a server as a client's configuration has it.

    Raises:
        ConfigurationError: the target is not a file or module that can be found, or the token is not in a file.
    """
    described, is_url = _FILES[client], where.startswith(("http://", "https://"))
    if is_url and token is None and described.speaks_http:
        return {"type": "http", "url": where} if described.has_type else {"url": where}
    words = ["stdio", where if is_url else absolute_target(where)]
    if token is not None:
        words += ["--token", _absolute_token(token)]
    program, *arguments = [*_mcpfleet(), *words]
    kind = {"type": "stdio"} if described.has_type else {}
    return {**kind, "command": program, "args": arguments}


def place_of(client: ClientName, platform: str = sys.platform, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file of a client's own configuration."""
    home = Path.home()
    if client == "cursor":
        return home / ".cursor" / "mcp.json"
    if platform == "darwin":
        base = home / "Library" / "Application Support"
    elif platform == "win32":
        base = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        base = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    if client == "vscode":
        return base / "Code" / "User" / "mcp.json"
    return base / "Claude" / "claude_desktop_config.json"


def absolute_target(target: str) -> str:
    """Return a target that means the same in every folder: the absolute path of its file.

    Raises:
        ConfigurationError: there is no such file or module.
    """
    from mcpfleet.sources.names import FILE, OPENAPI  # noqa: PLC0415  # a URL needs none of it

    if target.startswith(OPENAPI):
        return OPENAPI + _absolute_file(target.removeprefix(OPENAPI), target)
    if (file := FILE.fullmatch(target)) is not None:
        return _absolute_file(file["file"], target) + (f":{file['name']}" if file["name"] else "")
    place, colon, attribute = target.partition(":")
    path = Path(place).resolve() if place.endswith(".py") else _file_of(place)
    if path is None or not path.is_file():
        raise ConfigurationError(f"{target}: there is no such application: give path/to/app.py")
    return f"{path}{colon}{attribute}"


def _absolute_file(place: str, target: str) -> str:
    path = Path(place).resolve()
    if not path.is_file():
        raise ConfigurationError(f"{target}: there is no file {place}")
    return str(path)


def _file_of(module: str) -> Path | None:
    """Find a module's file without importing anything."""
    first, *rest = module.split(".")
    if not all(part.isidentifier() for part in (first, *rest)):
        return None
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = find_spec(first)
    if spec is None:
        return None
    if not rest and spec.origin is not None:
        return Path(spec.origin)
    for location in spec.submodule_search_locations or ():
        inner = Path(location).joinpath(*rest)
        for path in (inner.with_suffix(".py"), inner / "__init__.py"):
            if rest and path.is_file():
                return path
    return None


def _absolute_token(token: str) -> str:
    if not token.startswith("@"):
        raise ConfigurationError("--token: give @FILE, since a configuration file is no place for a token")
    path = Path(token[1:]).expanduser().resolve()
    if not path.is_file():
        raise ConfigurationError(f"--token: there is no file {path}")
    return f"@{path}"


def _mcpfleet() -> list[str]:
    """The command `mcpfleet` as another program can start it: by this interpreter, unless it is a passing one of uv."""
    if _PASSING & set(Path(sys.executable).parts):
        return [shutil.which("uvx") or "uvx", "--from", "mcpfleet[dev]", "mcpfleet"]
    return [*MODULE, "mcpfleet.cli"]


def _derived(where: str) -> str:
    """A name for the server: the application's, or the host's first word."""
    if where.startswith(("http://", "https://")):
        host = urlsplit(where).hostname or ""
        word = host.partition(".")[0]
        return word if re.fullmatch(r"[a-z][a-z0-9-]{0,63}", word) and word != "localhost" else "mcpfleet"
    if (name := _of_sources(where)) is not None:
        return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:64] or "mcpfleet"
    place = where.partition(":")[0]
    path = Path(place)
    last = (
        (path.parent.name if path.stem in {"__init__", "__main__"} else path.stem) if place.endswith(".py") else place
    )
    return re.sub(r"[^A-Za-z0-9_-]+", "-", last.rpartition(".")[2]).strip("-")[:64] or "mcpfleet"


def _of_sources(where: str) -> str | None:
    """Return a name for servers that exist: the named one's, or the folder's of their file; None for an application."""
    from mcpfleet.sources.names import FILE, OPENAPI  # noqa: PLC0415  # a URL needs none of it

    if where.startswith(OPENAPI):
        return Path(where.removeprefix(OPENAPI)).stem
    if (file := FILE.fullmatch(where)) is None:
        return None
    folder = Path(file["file"]).resolve().parent
    return file["name"] or (folder.parent if folder.name in {".vscode", ".cursor"} else folder).name


def _claude_command(name: str, server: Mapping[str, Any]) -> list[str]:
    start = ["claude", "mcp", "add", "--transport", server["type"], name]
    return [*start, server["url"]] if "url" in server else [*start, "--", server["command"], *server["args"]]


def _tell_claude(command: Sequence[str], *, prints: bool) -> int:
    program = shutil.which("claude")
    if prints or program is None:
        typer.echo(shlex.join(command))
        if not prints:
            typer.echo("the program `claude` is not on the path: run this command where it is", err=True)
        return DRAINED
    done = subprocess.run([program, *command[1:]], check=False)  # noqa: S603  # what the user asked for
    return FAILED if done.returncode else DRAINED


def _snippet(client: ClientName, name: str, server: Mapping[str, Any]) -> str:
    return json.dumps({_FILES[client].member: {name: server}}, indent=2, ensure_ascii=False)


def _write(client: ClientName, path: Path, name: str, server: Mapping[str, Any]) -> str:
    """Put a server into a file, and keep all else in it; returns what was done."""
    member = _FILES[client].member
    path = path.resolve()  # where it is a link, its file is written
    try:
        text = path.read_bytes().decode("utf-8-sig") if path.exists() else ""
        content = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse) if text.strip() else {}
    except (UnicodeDecodeError, ValueError):
        raise _to_paste(client, path, name, server, "has comments, or is not JSON") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from None
    servers = content.get(member, {}) if isinstance(content, dict) else None
    if not isinstance(servers, dict):
        raise _to_paste(client, path, name, server, f"has no object {member!r} where it belongs")
    if servers.get(name) == server:
        return "was there already"
    done = "was replaced" if name in servers else "was added"
    indent = _INDENT.search(text)
    changed = {**content, member: {**servers, name: server}}
    _replace(path, json.dumps(changed, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n")
    return done


def _to_paste(client: ClientName, path: Path, name: str, server: Mapping[str, Any], why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path}: {why}, so it was left as it is. Add this to it:", _snippet(client, name, server)
    )


def _replace(path: Path, text: str) -> None:
    """Write a file at once: a reader finds the old content or the new."""
    made = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
            made = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, made)
        made.replace(path)
    except OSError as error:
        if made is not None:
            made.unlink(missing_ok=True)
        raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a member stands twice")
    return dict(pairs)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
