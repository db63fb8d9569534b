"""Our own tables of sources: `[sources.NAME]` of fleet.toml, and the same below `"mcpfleet"` in JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcpfleet.app.declaration import check_asks, check_name, check_only_for, check_scopes
from mcpfleet.app.errors import Mistake
from mcpfleet.sources.config_file import ConfigFile, Keys, kind_of, meant
from mcpfleet.sources.expansion import Expansion
from mcpfleet.sources.source import Command, Object, OpenApi, Source, ToolSettings, Url, Value, Way

WAYS: Final[Mapping[str, frozenset[str]]] = {
    "command": frozenset({"args", "env", "envFile", "cwd"}),
    "url": frozenset({"headers", "auth"}),
    "object": frozenset({"python", "env"}),
    "openapi": frozenset({"base_url", "headers", "auth"}),
}
"""The members that say how a source is reached, each with those that may stand beside it."""
_OF_WAYS: Final[frozenset[str]] = frozenset().union(*WAYS.values())
RENAMED: Final[Mapping[str, str]] = {"leave_out": "except"}
"""Members of a source that files call otherwise."""
SETTINGS: Final = (frozenset(Source.model_fields) - {"name", "way", "place", *RENAMED}) | {*RENAMED.values()}
"""The members that change what it serves, and how."""
_AUTH: Final[Mapping[str, tuple[frozenset[str], frozenset[str]]]] = {
    "bearer": (frozenset({"token"}), frozenset()),
    "headers": (frozenset({"headers"}), frozenset()),
    "client_credentials": (frozenset({"client_id", "client_secret"}), frozenset({"scopes", "issuer"})),
    "private_key_jwt": (frozenset({"client_id", "private_key"}), frozenset({"scopes", "algorithm", "issuer"})),
    "exchange": (frozenset({"audience"}), frozenset({"scopes", "list_auth"})),
}
"""The kinds of `auth`: the members that each needs, and those that it may have."""


class SourceTable:
    """A table of a file that describes a source, or refines one of another file."""

    def __init__(self, file: ConfigFile, keys: Keys, raw: Any, expansion: Expansion) -> None:
        """Check that it is a table.

        Raises:
            ConfigurationError: it is none.
        """
        self.file = file
        self.keys = keys
        self.raw: dict[str, Any] = self.file.table(keys, raw)
        self.expansion = expansion

    @property
    def way_names(self) -> list[str]:
        """The members that say how the source is reached."""
        return [name for name in WAYS if name in self.raw]

    def way(self) -> Way:
        """Return how the source is reached.

        Raises:
            ConfigurationError: it does not say so, or says so twice, or a member is wrong.
        """
        names = self.way_names
        if len(names) != 1:
            said = " and ".join(names) or "neither"
            raise self.file.fault(self.keys, f"must have one of {', '.join(WAYS)}, and has {said}")
        name = names[0]
        for other in sorted(_OF_WAYS - WAYS[name]):
            if other in self.raw:
                raise self.file.fault((*self.keys, other), f"stands beside {_beside(other)}, not beside {name}")
        return getattr(self, f"_{name}")()  # type: ignore[no-any-return]  # one of the four below

    def check_members(self, *more: str) -> None:
        """Refuse members that nothing reads; `more` are known too.

        Raises:
            ConfigurationError: there is one; the sentence says what was meant.
        """
        known = SETTINGS | WAYS.keys() | _OF_WAYS | set(more)
        for name in self.raw:
            if name not in known:
                raise self.file.fault((*self.keys, name), f"no such member: {meant(name, known)}")

    def settings(self) -> dict[str, Any]:
        """Return the members that change what the source serves, as `Source` takes them.

        Raises:
            ConfigurationError: one is wrong.
        """
        made = {name: self.raw[name] for name in SETTINGS & self.raw.keys() if name not in ("except", "tools")}
        if "except" in self.raw:
            made["leave_out"] = self.raw["except"]
        if "roots" in made and isinstance(made["roots"], list):
            keys = (*self.keys, "roots")
            made["roots"] = [self.expansion.text((*keys, at), each).text for at, each in enumerate(made["roots"])]
        self._check(self.keys, made.get("scopes"), "scopes", check_scopes)
        self._check(self.keys, made.get("asks"), "asks", lambda words: check_asks("asks", words))
        if "tools" in self.raw:
            keys = (*self.keys, "tools")
            made["tools"] = {
                name: self._tool((*keys, name), each) for name, each in self.file.table(keys, self.raw["tools"]).items()
            }
        return made

    def values(self, name: str) -> dict[str, Value]:
        """Return a table of variables or headers; empty without one."""
        return self._values((*self.keys, name), self.raw.get(name, {}))

    def env(self) -> dict[str, Value]:
        """Return the variables of `envFile` and `env`; the latter count."""
        own = self.values("env")
        if "envFile" not in self.raw:
            return own
        return self.expansion.env_file((*self.keys, "envFile"), self.raw["envFile"]) | own

    def refine(self, way: Way) -> Way:
        """Return the way of an included source with this table's `env`, `headers` and `auth` laid over it.

        Raises:
            ConfigurationError: a member is wrong, or belongs to the file that describes the source.
        """
        members: dict[str, Any] = {}
        for name in _OF_WAYS & self.raw.keys():
            if name not in ("env", "headers", "auth"):
                raise self.file.fault((*self.keys, name), "belongs to the file that describes the source")
            if name not in type(way).model_fields:
                raise self.file.fault((*self.keys, name), f"stands beside {_beside(name)}, not beside {way.kind}")
            before = getattr(way, name)
            members[name] = self._auth() if name == "auth" else {**before, **self.values(name)}
        return way.model_copy(update=members)

    def _command(self) -> Command:
        given, keys = self.raw["command"], (*self.keys, "command")
        several = given if isinstance(given, list) else [given]
        if not several or several[0] == "":
            raise self.file.fault(keys, "must name a program")
        places = [(*keys, at) if isinstance(given, list) else keys for at in range(len(several))]
        args = self.raw.get("args", [])
        if not isinstance(args, list):
            raise self.file.fault((*self.keys, "args"), f"must be a list of texts, not {kind_of(args)}")
        places += [(*self.keys, "args", at) for at in range(len(args))]
        words = [self.expansion.text(place, each) for place, each in zip(places, [*several, *args], strict=True)]
        cwd = self.expansion.path((*self.keys, "cwd"), self.raw["cwd"]) if "cwd" in self.raw else None
        if cwd is not None and not cwd.is_dir():
            raise self.file.fault((*self.keys, "cwd"), f"{cwd} is no folder")
        return Command(
            words=tuple(each.text for each in words), shown=tuple(each.shown for each in words), env=self.env(),
            cwd=cwd or self.expansion.folder, secrets=tuple(part for each in words for part in each.secrets),
        )  # fmt: skip

    def _url(self) -> Url:
        url = self.expansion.text((*self.keys, "url"), self.raw["url"])
        self._check_url("url", url.text)
        return Url(
            url=url.text, shown=url.shown, headers=self.values("headers"), auth=self._auth(), secrets=url.secrets
        )

    def _object(self) -> Object:
        target = self.expansion.text((*self.keys, "object"), self.raw["object"]).text
        file, colon, name = target.partition(":")
        if file.endswith(".py"):
            path = self.expansion.folder / file
            if not path.is_file():
                raise self.file.fault((*self.keys, "object"), f"{path}: the file does not exist")
            target = f"{path}{colon}{name}"
        python = None
        if "python" in self.raw:
            python = self.expansion.text((*self.keys, "python"), self.raw["python"]).text
            if "/" in python:
                python = str(self.expansion.folder / python)
        return Object(target=target, python=python, env=self.env())

    def _openapi(self) -> OpenApi:
        document = self.expansion.text((*self.keys, "openapi"), self.raw["openapi"]).text
        if not document.startswith(("http://", "https://")):
            path = self.expansion.folder / document
            if not path.is_file():
                raise self.file.fault((*self.keys, "openapi"), f"{path}: the file does not exist")
            document = str(path)
        base = None
        if "base_url" in self.raw:
            base = self.expansion.text((*self.keys, "base_url"), self.raw["base_url"]).text
            self._check_url("base_url", base)
        return OpenApi(document=document, base_url=base, headers=self.values("headers"), auth=self._auth())

    def _check_url(self, name: str, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise self.file.fault((*self.keys, name), "must begin with http:// or https://")

    def _auth(self) -> dict[str, Any] | None:
        return self._auth_of((*self.keys, "auth"), self.raw["auth"]) if "auth" in self.raw else None

    def _auth_of(self, keys: Keys, raw: Any) -> dict[str, Any]:
        table = self.file.table(keys, raw)
        kind = table.get("kind")
        if not isinstance(kind, str) or kind not in _AUTH:
            raise self.file.fault((*keys, "kind"), f"must be one of {', '.join(_AUTH)}")
        needed, allowed = _AUTH[kind]
        for name in sorted(needed - table.keys()):
            raise self.file.fault(keys, f"the kind {kind} needs {name}")
        made: dict[str, Any] = {"kind": kind}
        for name, each in table.items():
            at = (*keys, name)
            if name == "kind":
                continue
            if name not in needed | allowed:
                raise self.file.fault(at, f"no such member of the kind {kind}: {meant(name, needed | allowed)}")
            match name:
                case "scopes":
                    made[name] = tuple(self.file.texts(at, each))
                    self._check(keys, made[name], name, check_scopes)
                case "headers":
                    made[name] = self._values(at, each)
                case "list_auth":
                    made[name] = self._auth_of(at, each)
                case "audience" | "algorithm" | "issuer":
                    made[name] = self.expansion.text(at, each).text
                case _:
                    made[name] = self.expansion.value(at, each)
        return made

    def _tool(self, keys: Keys, raw: Any) -> ToolSettings:
        table = self.file.table(keys, raw)
        if table.get("hide") and len(table) > 1:
            raise self.file.fault(keys, "a hidden tool has no other settings")
        self._check(keys, table.get("name"), "name", lambda name: check_name("tool", name))
        self._check(keys, table.get("scopes"), "scopes", check_scopes)
        self._check(keys, table.get("only_for"), "only_for", check_only_for)
        self._check(keys, table.get("asks"), "asks", lambda words: check_asks("asks", words))
        return self.file.validated(ToolSettings, keys, table)

    def _check(self, keys: Keys, given: Any, name: str, check: Callable[[Any], None]) -> None:
        """Check a text, or a list of texts, by an App's own rules; other kinds of values are left to the model."""
        if not isinstance(given, str | list | tuple) or (isinstance(given, str) != (name == "name")):
            return
        try:
            if all(isinstance(each, str) for each in given):
                check(given)
        except Mistake as error:
            raise self.file.fault((*keys, name), str(error)) from None

    def _values(self, keys: Keys, raw: Any) -> dict[str, Value]:
        return {name: self.expansion.value((*keys, name), each) for name, each in self.file.table(keys, raw).items()}


def _beside(name: str) -> str:
    return " or ".join(way for way, others in WAYS.items() if name in others)
