"""Settings: one typed, frozen object for each service, read once from MCPFLEET_… variables.

A secret stands in its variable, or in a file that the variable with the suffix `_FILE` names. Every field has a meaning
and a unit; an unknown name is an error at the start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.names import PREFIX


@dataclass(frozen=True, slots=True)
class Unit:
    """A number's unit, for people who read a table of settings."""

    name: str


SECONDS: Final = Unit("s")
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False), SECONDS]
Bytes = Annotated[int, Field(gt=0), Unit("bytes")]


def host_and_port(bind: str) -> tuple[str, int]:
    """Split `host:port`, `[::1]:port` or `:port` (all addresses); raises ValueError with the right form."""
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError("an address is host:port, with port 0 for any free one")
    return host.strip("[]"), int(port)


def _bind(value: str) -> str:
    host_and_port(value)
    return value


def _without_password(value: str) -> str:
    if "@" in value:
        raise ValueError("holds a user or a password; use MCPFLEET_NATS_USER and MCPFLEET_NATS_PASSWORD")
    return value


def _web_address(value: str) -> str:
    if value and not re.fullmatch(r"https?://[^\s@?#]+", value):
        raise ValueError("must begin with http:// or https://, and hold neither a user nor ? or #")
    return value.rstrip("/")


def _separated(value: object) -> object:
    """Read a list of words with separators; values from code pass."""
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


Bind = Annotated[str, AfterValidator(_bind)]
"""An address to listen on, as `host:port`; port 0 takes a free one."""
WebUrl = Annotated[str, AfterValidator(_web_address)]
"""A page's address for a browser, without a slash at its end; empty for none."""
NatsUrl = Annotated[str, AfterValidator(_without_password)]
"""The address of a NATS server; it is printed, so it holds no password."""
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_separated)]
"""Several words in one variable, separated by commas."""


class Settings(BaseSettings):
    """The base of every class of settings."""

    # Inputs stay out of pydantic's errors, even printed ones: they may be secrets.
    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid", hide_input_in_errors=True
    )

    @classmethod
    def load(cls) -> Self:
        """Read the settings from the environment; raises `ConfigurationError` with a line for each problem."""
        return loaded(cls)

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Self:
        """Read the settings as a process would that has only these variables; raises as `load` does."""
        source = _Variables(cls)
        source.env_vars = {name.lower(): value for name, value in variables.items() if value}
        settings = cls.__new__(cls)
        loaded(lambda: BaseModel.__init__(settings, **source()))  # the class's own would read our environment
        return settings

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *_args: PydanticBaseSettingsSource, **sources: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: arguments, variables, secret files; no dotenv, which would be read unseen."""
        return sources["init_settings"], _Variables(settings_cls), _SecretFiles(settings_cls)


class ProcessSettings(Settings):
    """The settings of every process."""

    nats_url: NatsUrl = Field(
        default="nats://127.0.0.1:4222", description="The address of the NATS server, without a password."
    )
    nats_user: str = Field(default="", description="The user of this process at NATS; empty for the user of its role.")
    nats_password: SecretStr = Field(default=SecretStr(""), description="The password of that user.")
    nats_ca: str = Field(
        default="", description="A file of certificates that verify a tls:// NATS; empty for the machine's."
    )
    allow_open_nats: bool = Field(
        default=False, description="Accept a NATS on another machine that asks for no password."
    )
    subject_prefix: str = Field(
        default="mcpfleet",
        pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)*$",
        description="The prefix of all subjects: one for each fleet that shares a NATS.",
    )
    admin_bind: Bind = Field(
        default="127.0.0.1:0", description="The address of /livez, /readyz and /metrics; port 0 takes a free one."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level of lines that are logged."
    )
    log_format: Literal["json", "console"] = Field(
        default="json", description="One JSON object a line, or text for people."
    )
    console: bool = Field(
        default=False,
        description="Send stats to consoles, and serve one on the admin port at /console (except a worker).",
    )
    console_hosts: Names = Field(
        default=(), description="Host names that serve /console, besides localhost and addresses."
    )
    jaeger_url: WebUrl = Field(default="", description="The address of Jaeger's page, to which /console links traces.")
    observer: str = Field(
        default="", description="The module:object that each process tells of what happens: a function of an event."
    )
    drain: Seconds = Field(default=30.0, description="The time for running work after the first signal.")
    last_deadline: Seconds = Field(
        default=60.0, description="The time after the first signal after which work is cancelled."
    )
    bus_question_every: Seconds = Field(
        default=2.0, gt=0, description="The interval at which a process asks itself through NATS."
    )
    bus_dead_after: Seconds = Field(
        default=2.0, gt=0, description="The time without that answer after which the link is dead."
    )
    bus_reconnect_jitter: Seconds = Field(default=1.0, gt=0, description="The longest random wait before a new link.")
    bus_connect_timeout: Seconds = Field(default=2.0, gt=0, description="The time that connecting to NATS may take.")
    bus_start_within: Seconds = Field(default=2.0, description="The age of the oldest request that a receiver accepts.")
    bus_clock_tolerance: Seconds = Field(
        default=1.0, description="The most that the clocks of two machines may differ."
    )
    bus_hop_margin: Seconds = Field(default=0.05, description="The time that each hop takes off a request's deadline.")
    bus_pending_bytes: Bytes = Field(
        default=16 << 20, description="The most that may wait for NATS; more is an error to its sender."
    )
    bus_max_payload: Bytes = Field(
        default=8 << 20, description="The largest message with its headers; the max_payload of NATS."
    )

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.last_deadline < self.drain:
            raise ValueError("MCPFLEET_LAST_DEADLINE: must not be before the end of MCPFLEET_DRAIN")
        return self


_S = TypeVar("_S")


def loaded(make: Callable[[], _S]) -> _S:
    """Make settings, and raise their problems as `ConfigurationError`, in an operator's words."""
    try:
        return make()
    except ValidationError as error:
        raise ConfigurationError(*(_problem(detail) for detail in error.errors(include_url=False))) from None
    except SettingsError as error:
        # It names the field; its cause would quote the value.
        field = re.search(r'field "(\w+)"', str(error))
        raise ConfigurationError(f"{variable(field[1] if field else '')}: has the wrong form") from None


def variable(field: str) -> str:
    """Return the name of a field's variable."""
    return PREFIX + field.upper()


def is_secret(field: FieldInfo) -> bool:
    """Return whether the field's value prints as stars."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


class _Variables(EnvSettingsSource):
    """Reads the fields whose variables are set. Pydantic's own examines the types of all fields, which takes longer."""

    def __call__(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, field in self.settings_cls.model_fields.items():
            if variable(name).lower() not in self.env_vars:
                continue
            value, _, is_complex = self.get_field_value(field, name)
            try:
                values[name] = self.prepare_field_value(name, field, value, is_complex)
            except ValueError as error:
                raise SettingsError(f'error parsing value for field "{name}"') from error
        return values


class _SecretFiles(PydanticBaseSettingsSource):
    """Reads secrets from the files that `…_FILE` variables name."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Read one field's file, if it has one."""
        name = variable(field_name)
        path = os.environ.get(f"{name}_FILE") if is_secret(field) else None
        if not path:
            return None, field_name, False
        if os.environ.get(name):
            raise ConfigurationError(f"{name}: set either it or {name}_FILE, not both")
        try:
            # Editors and secret stores end files with a line feed that is no part of the secret.
            return Path(path).read_text(encoding="utf-8").rstrip("\r\n"), field_name, False
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "is not text"
            raise ConfigurationError(f"{name}_FILE: cannot read {path}: {reason}") from None

    def __call__(self) -> dict[str, Any]:
        values = {name: self.get_field_value(field, name)[0] for name, field in self.settings_cls.model_fields.items()}
        return {name: value for name, value in values.items() if value is not None}


def _problem(detail: Any) -> str:
    """Describe one of pydantic's errors without its value."""
    message = detail["msg"].removeprefix("Value error, ")
    if not detail["loc"]:  # a rule over several fields names them itself
        return str(message)
    name = variable(str(detail["loc"][0]))
    return f"{name}: must be set" if detail["type"] == "missing" else f"{name}: {message}"
