"""MCPFLEET_ENDPOINTS: the MCP endpoints of the fleet, a setting that edges and the catalog share."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from mcpfleet.contracts.manifest import LONGEST_TIMEOUT, POOL_PATTERN, CachedName, digest_of
from mcpfleet.process.settings import Settings
from mcpfleet.wire.protocol import LEGACY, MODERN, SERVED, SERVED_WITH_LEGACY

EVERY_POOL: Final = "*"

Name = Annotated[str, StringConstraints(pattern=POOL_PATTERN)]
Text = Annotated[str, StringConstraints(min_length=1)]
Pool = Annotated[str, StringConstraints(pattern=rf"{POOL_PATTERN}|^\*$")]
RevisionName = Literal["2026-07-28", "2025-11-25", "2025-06-18"]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_TIMEOUT, allow_inf_nan=False)]
Path = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._~-]+)+$", max_length=256)]


class Endpoint(BaseModel):
    """One MCP URL path with a catalog of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: Path
    """The URL's path: it begins with a slash, ends without one, and needs no escapes."""
    pools: tuple[Pool, ...] = (EVERY_POOL,)
    """The pools that may serve it; `*` is every pool."""
    names: Mapping[Name, tuple[Text, ...]] = {}
    """For a pool, patterns of the names that it may serve here (`*`, `?`, `[…]`); a pool without patterns may serve
    any."""
    title: Text | None = None
    """For people: `serverInfo.title`; by default the title of a single pool."""
    version: Text = "1"
    """`serverInfo.version` if several pools serve it, since they have no version in common."""
    revisions: tuple[RevisionName, ...] = SERVED_WITH_LEGACY
    """The revisions of MCP that it serves, all on the same path; by default all that this release knows (X61, D11)."""
    legacy: bool | None = Field(default=None, exclude=True)
    """The spelling of former releases: false is `"revisions": ["2026-07-28"]`, true is all of them."""
    sessions: bool = True
    """Give clients of 2025 sessions: streams of changes, questions to them, a log level (D11)."""
    ttl: Mapping[CachedName, Seconds] = {}
    """Seconds for which clients may keep its lists and the answer of `server/discover`; by default the least of what
    its pools state (X74)."""
    apps_2025: bool = True
    """Give sessions of 2025 whose clients declare Apps their documents; otherwise no `ui://` URI exists for any client
    of 2025 (X16)."""
    tasks: bool = True
    """Offer durable tasks of tools that declare some; otherwise tools that are always tasks are left out (K1)."""
    language_header: bool = True
    """Read a language preference from the header `Accept-Language` alone, too, which SEP-2792 ignores; in requests of
    2025 it always counts (X30)."""
    body_version_wins: bool = False
    """Serve a request whose version header differs from the body, by the body: the protocol forbids it (D5)."""
    instructions: Text | None = None
    """The first text that a model reads; by default that of a single pool, and none of several pools."""

    @model_validator(mode="before")
    @classmethod
    def _reads_legacy(cls, value: Any) -> Any:
        """Read the spelling of former releases; `edge.server.wiring` warns of it."""
        if not isinstance(value, Mapping) or not isinstance(is_legacy := value.get("legacy"), bool):
            return value
        if "revisions" in value:
            raise ValueError("`legacy` and `revisions` say the same: write `revisions` alone")
        return {**value, "revisions": SERVED_WITH_LEGACY if is_legacy else SERVED}

    @field_validator("revisions")
    @classmethod
    def _the_newest_first(cls, revisions: tuple[str, ...]) -> tuple[str, ...]:
        if not revisions:
            raise ValueError(f"name one revision at least, of {', '.join(SERVED_WITH_LEGACY)}")
        return tuple(each for each in SERVED_WITH_LEGACY if each in revisions)

    @model_validator(mode="after")
    def _every_pattern_has_its_pool(self) -> Endpoint:
        strangers = [pool for pool in self.names if not self.admits(pool)]
        if strangers:
            raise ValueError(f"names: {strangers[0]!r} is not among the endpoint's pools")
        return self

    def admits(self, pool: str) -> bool:
        """Return whether the pool may serve the endpoint at all."""
        return EVERY_POOL in self.pools or pool in self.pools

    def allows(self, pool: str, name: str) -> bool:
        """Return whether the pool may serve a definition of this name here."""
        return any(fnmatchcase(name, pattern) for pattern in self.names.get(pool, (EVERY_POOL,)))

    @property
    def is_modern(self) -> bool:
        """Whether the endpoint serves revision 2026-07-28."""
        return MODERN in self.revisions

    @property
    def has_sessions(self) -> bool:
        """Whether the endpoint serves clients of 2025, with sessions."""
        return self.sessions and any(each in LEGACY for each in self.revisions)

    @property
    def renamed(self) -> Mapping[str, str]:
        """The spelling of former releases that these settings have, and the one to write instead."""
        instead = f'"revisions": {to_json(self.revisions).decode()}'
        return {"instead_of": f'"legacy": {to_json(self.legacy).decode()}', "write": instead}

    def stated(self, header: str | None) -> str | None:
        """Return the revision that a request states by its header; an absent one means the only one of 2025 (X62)."""
        if header is None and len(self.revisions) == 1 and not self.is_modern:
            return self.revisions[0]
        return header

    @property
    def digest(self) -> str:
        """Names these settings, so that a catalog with other settings notices."""
        settings = self.model_dump(mode="json")
        for name in ("sessions", "apps_2025", "language_header"):  # the catalog does not need them
            del settings[name]
        settings["names"] = dict(sorted(settings["names"].items()))
        if self.revisions in (SERVED, SERVED_WITH_LEGACY):  # as former releases wrote it, so that older digests stay
            settings["legacy"] = self.revisions == SERVED_WITH_LEGACY
            del settings["revisions"]
        for name, default in (("tasks", True), ("ttl", {})):  # written only if they differ, so that older digests stay
            if settings[name] == default:
                del settings[name]
        return digest_of(to_json(settings))


class EndpointSettings(Settings):
    """Settings that edges and the catalog share."""

    endpoints: Mapping[Name, Endpoint] = Field(
        default={"mcp": Endpoint(path="/mcp")},
        min_length=1,
        description="The MCP endpoints, as JSON: name to path, pools, names, title, version, revisions, instructions.",
    )

    @field_validator("endpoints", mode="wrap")
    @classmethod
    def _errors_name_the_field(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_context=False, include_input=False)
            raise ValueError(
                "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
            ) from None

    @field_validator("endpoints")
    @classmethod
    def _no_two_share_a_path(cls, endpoints: Mapping[str, Endpoint]) -> Mapping[str, Endpoint]:
        owners: dict[str, str] = {}
        for name, endpoint in endpoints.items():
            owner = owners.setdefault(endpoint.path, name)
            if owner != name:
                raise ValueError(f"{name}.path: {endpoint.path} is the path of {owner}")
        return endpoints
