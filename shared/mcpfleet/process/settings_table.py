"""Settings from outside: a table for people, an environment for tests, and unknown names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from mcpfleet.process.names import PREFIX, TOKEN_VARIABLE
from mcpfleet.process.settings import SECONDS, Settings, Unit, is_secret, variable

LEAST_SCALED: Final = 0.1
"""Seconds below which no duration is scaled: a busy machine is that late by itself."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting in the table."""

    name: str
    value: str
    """A secret that is set shows as stars."""
    default: str
    """Empty for a required setting, which has none."""
    unit: str
    meaning: str


@dataclass(frozen=True, slots=True)
class UnknownName:
    """A variable that looks like a setting but is none."""

    name: str
    nearest: str | None
    """The setting with the most similar name."""

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.name}: there is no such setting{hint}"


def rows(cls: type[Settings]) -> list[SettingRow]:
    """Return the settings of a class with their present values; raises `ConfigurationError` as `load` does."""
    values = cls.load()
    return [
        SettingRow(
            name=variable(name),
            value=_text(getattr(values, name)),
            default="" if field.is_required() else _text(field.get_default(call_default_factory=True)),
            unit=_unit(field),
            meaning=field.description or "",
        )
        for name, field in cls.model_fields.items()
    ]


def scaled(cls: type[Settings], factor: float) -> dict[str, str]:
    """Return the environment that divides every duration's default by a factor, none to below `LEAST_SCALED`."""
    durations = {name: field.default for name, field in cls.model_fields.items() if _unit(field) == SECONDS.name}
    return {
        variable(name): f"{max(default / factor, min(default, LEAST_SCALED)):g}"
        for name, default in durations.items()
        if isinstance(default, int | float)
    }


def unknown_names(environ: Mapping[str, str], classes: Iterable[type[Settings]]) -> list[UnknownName]:
    """Return the variables with our prefix that none of these classes knows."""
    known: set[str] = set()
    for cls in classes:
        for name, field in cls.model_fields.items():
            known.add(variable(name))
            if is_secret(field):
                known.add(f"{variable(name)}_FILE")
    fine = known | {TOKEN_VARIABLE}  # no class has this setting, so it must not be the nearest name
    strangers = sorted(name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in fine)
    return [
        UnknownName(name, next(iter(get_close_matches(name.upper(), known, n=1, cutoff=0.8)), None))
        for name in strangers
    ]


def _unit(field: FieldInfo) -> str:
    return next((part.name for part in field.metadata if isinstance(part, Unit)), "")


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case SecretStr():
            return str(value)
        case tuple() | list():
            return ",".join(map(str, value))
        case dict():
            return to_json(value, by_alias=True).decode()
        case _:
            return "" if value is None else str(value)
