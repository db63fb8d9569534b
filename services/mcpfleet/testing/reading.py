"""A service's settings, read from variables that are not this process's environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic_settings import EnvSettingsSource

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.process.settings import Settings, loaded
from mcpfleet.process.settings_table import scaled, unknown_names

S = TypeVar("S", bound=Settings)

AT_ONCE: Final[Mapping[str, str]] = MappingProxyType({"MCPFLEET_LAME": "0", "MCPFLEET_DRAIN_GRACE": "0"})
"""Variables by which an edge that drains waits for what runs, and for no client that may come yet."""
_NOBODYS: Final = "NOT_IN_THIS_ENVIRONMENT_"


def read(cls: type[S], variables: Mapping[str, str]) -> S:
    """Read settings as a process would that has these variables, and none of this process's own.

    Raises:
        ConfigurationError: a value breaks its field's rule.
    """
    source = EnvSettingsSource(cls)
    source.env_vars = {name.lower(): value for name, value in variables.items()}
    return loaded(lambda: cls(_env_prefix=_NOBODYS, **source()))


def check_names(variables: Mapping[str, str], classes: Iterable[type[Settings]]) -> None:
    """Refuse a variable that no service knows.

    Raises:
        ConfigurationError: there is one.
    """
    strangers = unknown_names(variables, classes)
    if strangers:
        raise ConfigurationError(*map(str, strangers))


def durations(classes: Iterable[type[Settings]], factor: float) -> dict[str, str]:
    """The variables that divide every duration among the settings; none gets below 0.1 s."""
    if factor == 1.0:
        return {}
    return {name: value for cls in classes for name, value in scaled(cls, factor).items()}
