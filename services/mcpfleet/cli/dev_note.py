"""The note by which an operator's command finds the `mcpfleet dev` of its folder: NATS' address, and a password."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from mcpfleet.contracts.endpoints import EndpointSettings
from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import ProcessSettings

NOTE: Final = Path(".mcpfleet") / "dev.json"
_SAY_WHICH_NATS: Final = ("MCPFLEET_NATS_URL", "MCPFLEET_NATS_PASSWORD", "MCPFLEET_NATS_PASSWORD_FILE")
_ENDPOINTS: Final = "MCPFLEET_ENDPOINTS"
_LONGEST: Final = 64 * 1024


class DevNote(BaseModel):
    """The content of the note."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)

    pid: int
    """The process id of `dev`; if it does not run, the note is stale."""
    nats_url: str
    nats_password: str
    subject_prefix: str
    endpoints: tuple[str, ...]


@contextmanager
def noted(settings: ProcessSettings, endpoints: Sequence[str]) -> Iterator[None]:
    """Leave the note for the length of a block; only this user can read it.

    Raises:
        OSError: it cannot be written.
    """
    note = DevNote(
        pid=os.getpid(),
        nats_url=settings.nats_url,
        nats_password=settings.nats_password.get_secret_value(),
        subject_prefix=settings.subject_prefix,
        endpoints=tuple(endpoints),
    )
    NOTE.parent.mkdir(mode=0o700, exist_ok=True)
    path, made = NOTE.absolute(), NOTE.absolute().with_suffix(f".{note.pid}")
    made.touch(mode=0o600)
    made.write_text(note.model_dump_json())
    made.replace(path)
    try:
        yield
    finally:
        # Another `dev` in this folder may have left its own note meanwhile.
        found = _read(path)
        if found is not None and found.pid == note.pid:
            with suppress(OSError):
                path.unlink()
                path.parent.rmdir()


def operator_settings() -> ProcessSettings:
    """An operator's settings: those of the environment, or of this folder's `dev` if the environment names no NATS.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    settings = ProcessSettings.load()
    note = _running()
    if note is None:
        return settings
    return settings.model_copy(
        update={
            "nats_url": note.nats_url,
            "nats_password": SecretStr(note.nats_password),
            "subject_prefix": note.subject_prefix,
        }
    )


def check_endpoint(name: str) -> None:
    """Refuse an unknown endpoint, if the environment or the note of a `dev` names the fleet's endpoints.

    Raises:
        ConfigurationError: the endpoint does not exist.
    """
    note = _running()
    if note is not None:
        names, known_by = note.endpoints, "the fleet of `mcpfleet dev`"
    elif os.environ.get(_ENDPOINTS):
        names, known_by = tuple(EndpointSettings.load().endpoints), _ENDPOINTS
    else:
        return
    if name not in names:
        raise ConfigurationError(f"{known_by} has no endpoint {name!r}: use one of {', '.join(names)}")


def _running() -> DevNote | None:
    if any(os.environ.get(name) for name in _SAY_WHICH_NATS):
        return None
    note = _read(NOTE)
    if note is None:
        return None
    try:
        os.kill(note.pid, 0)
    except OSError:
        return None
    return note


def _read(path: Path) -> DevNote | None:
    """Read a note that belongs to this user, and that nobody else can write."""
    try:
        with path.open("rb") as file:
            about = os.fstat(file.fileno())
            if about.st_uid != os.getuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                return None
            return DevNote.model_validate_json(file.read(_LONGEST))
    except (OSError, ValidationError):
        return None
