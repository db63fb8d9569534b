"""Texts of a configuration: what `${…}` in them stands for, and secrets that they name by variable or file."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mcpfleet.process.errors import ConfigurationError
from mcpfleet.sources.config_file import ConfigFile, Keys, kind_of, read_text
from mcpfleet.sources.source import Value

_OURS: Final = "MCPFLEET_"
INPUT: Final = "MCPFLEET_INPUT_"
"""Prefix of the variables that answer for VS Code's inputs, which that editor would ask its user for."""
_REFERENCE: Final = re.compile(r"\$\{(?P<inside>[^{}]*)(?P<end>\}?)")
_VARIABLE: Final = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_KNOWN: Final = "${NAME}, ${NAME:-default}, ${env:NAME}, ${input:id}, ${workspaceFolder} and ${userHome}"
_LINE: Final = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(?P<value>.*)")
_TELLING: Final = re.compile(r"(?i)(token|secret|password|passwd|credential|authorization|api[-_]?key|private[-_]?key)")
"""Names of variables and headers whose values are secrets."""


@dataclass(frozen=True)
class Expanded:
    """A text without references."""

    text: str
    shown: str
    """As the configuration has it: it is printed in place of the text."""
    secrets: tuple[str, ...]
    """The texts of variables and inputs in it."""

    @property
    def is_secret(self) -> bool:
        """Whether a variable or an input is in it."""
        return bool(self.secrets)


class Expansion:
    """Expands the texts of one file."""

    def __init__(self, file: ConfigFile, environment: Mapping[str, str], inputs: Collection[str] | None = None) -> None:
        """Expand nothing yet.

        Args:
            file: it holds them.
            environment: the variables; those of mcpfleet's own settings are never read.
            inputs: the ids of its inputs; None where the file's format has none.
        """
        self._file = file
        self._environment = environment
        self._inputs = inputs
        folder = file.path.absolute().parent
        self.folder: Final = folder.parent if folder.name in (".vscode", ".cursor") else folder
        """`${workspaceFolder}`, to which the paths in the file are relative."""

    def text(self, keys: Keys, given: Any) -> Expanded:
        """Return a text with each `${…}` replaced; what comes in is never expanded again.

        Raises:
            ConfigurationError: it is no text, a reference has an unknown form, or its variable is not set.
        """
        if not isinstance(given, str):
            raise self._file.fault(keys, f"must be a text, not {kind_of(given)}")
        secrets: list[str] = []

        def replaced(found: re.Match[str]) -> str:
            if not found["end"]:
                raise self._file.fault(keys, f"{found[0][:40]!r} has no closing brace")
            value, comes_from_variable = self._stands_for(keys, found["inside"])
            if comes_from_variable:
                secrets.append(value)
            return value

        return Expanded(_REFERENCE.sub(replaced, given), given, tuple(secrets))

    def value(self, keys: Keys, given: Any) -> Value:
        """Return a value of a variable or header: a text, `{ env = "NAME" }` or `{ file = "/path" }`.

        Raises:
            ConfigurationError: it is none of these, the variable is not set, or the file cannot be read.
        """
        if isinstance(given, bool | int | float):  # as editors allow in `env`
            return Value(text=str(given).lower() if isinstance(given, bool) else str(given), is_secret=False)
        if not isinstance(given, Mapping):
            if not isinstance(given, str):
                raise self._file.fault(
                    keys, f'must be a text, {{ env = "NAME" }} or {{ file = "/path" }}, not {kind_of(given)}'
                )
            expanded = self.text(keys, given)
            is_secret = expanded.is_secret or _is_telling(keys)
            parts = tuple(each for each in expanded.secrets if each != expanded.text)
            return Value(text=expanded.text, is_secret=is_secret, secrets=parts)
        if set(given) not in ({"env"}, {"file"}):
            raise self._file.fault(keys, 'a reference is { env = "NAME" } or { file = "/path" }')
        if "env" in given:
            name = given["env"]
            if not isinstance(name, str):
                raise self._file.fault((*keys, "env"), f"must be a variable's name, not {kind_of(name)}")
            return Value(text=self._variable(keys, name))
        path = self.path((*keys, "file"), given["file"])
        try:
            return Value(text=read_text(path).strip())
        except ConfigurationError as error:
            raise self._file.fault(keys, str(error)) from None

    def path(self, keys: Keys, given: Any) -> Path:
        """Return a path of the file, from `folder` on."""
        return self.folder / Path(self.text(keys, given).text).expanduser()

    def env_file(self, keys: Keys, given: Any) -> dict[str, Value]:
        """Return the variables of a file with lines `NAME=value`; all are secrets.

        Raises:
            ConfigurationError: it cannot be read, or a line has another form.
        """
        path = self.path(keys, given)
        made: dict[str, Value] = {}
        try:
            lines = read_text(path).splitlines()
        except ConfigurationError as error:
            raise self._file.fault(keys, str(error)) from None
        for number, line in enumerate(map(str.strip, lines), 1):
            if not line or line.startswith("#"):
                continue
            found = _LINE.fullmatch(line)
            if found is None:
                raise self._file.fault(keys, f"{path}:{number}: the line must be NAME=value")
            made[found["name"]] = Value(text=_unquoted(found["value"]))
        return made

    def _stands_for(self, keys: Keys, inside: str) -> tuple[str, bool]:
        """Return a reference's text, and whether a variable has it."""
        if inside == "workspaceFolder":
            return str(self.folder), False
        if inside == "userHome":
            return str(Path.home()), False
        if inside.startswith("input:"):
            return self._input(keys, inside.removeprefix("input:")), True
        found = _VARIABLE.fullmatch(inside)
        if found is None:
            raise self._file.fault(keys, f"${{{inside}}} has no meaning here; known are {_KNOWN}")
        name, default = found["name"], found["default"]
        if default is not None and (self._is_ours(name) or name not in self._environment):
            return str(default), False
        return self._variable(keys, name), True

    def _input(self, keys: Keys, name: str) -> str:
        if self._inputs is not None and name not in self._inputs:
            raise self._file.fault(keys, f"${{input:{name}}}: the file has no input with the id {name!r}")
        variable = variable_of_input(name)
        if variable not in self._environment:
            raise self._file.fault(keys, f"${{input:{name}}}: set {variable}, which answers for this input")
        return self._environment[variable]

    def _variable(self, keys: Keys, name: str) -> str:
        if self._is_ours(name):
            raise self._file.fault(keys, f"{name}: variables of mcpfleet's own settings are never given to a source")
        if name not in self._environment:
            raise self._file.fault(keys, f"the variable {name} is not set")
        return self._environment[name]

    @staticmethod
    def _is_ours(name: str) -> bool:
        return name.upper().startswith(_OURS) and not name.startswith(INPUT)


def variable_of_input(name: str) -> str:
    """Return the variable that answers for an input: `MCPFLEET_INPUT_API_KEY` for `api-key`."""
    return INPUT + re.sub(r"[^A-Z0-9]", "_", name.upper())


def literal_secrets(members: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the table and name of each secret that stands in the file itself, by the names of its values (B28)."""
    for table in ("env", "headers"):
        given = members.get(table)
        for name, value in given.items() if isinstance(given, dict) else ():
            if isinstance(value, str) and value and _is_telling((name,)) and "${" not in value:
                yield table, name


def _is_telling(keys: Keys) -> bool:
    return bool(keys) and isinstance(keys[-1], str) and _TELLING.search(keys[-1]) is not None


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        inner = value[1:-1]
        return inner.replace("\\n", "\n").replace('\\"', '"') if value[0] == '"' else inner
    return re.split(r"\s#", value, maxsplit=1)[0].strip()
