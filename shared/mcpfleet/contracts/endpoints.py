"""MCPFLEET_ENDPOINTS: the MCP endpoints of the fleet, a setting that edges and the catalog share."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

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

from mcpfleet.contracts.manifest import POOL_PATTERN, digest_of
from mcpfleet.process.settings import Settings

EVERY_POOL: Final = "*"

Name = Annotated[str, StringConstraints(pattern=POOL_PATTERN)]
Text = Annotated[str, StringConstraints(min_length=1)]
Pool = Annotated[str, StringConstraints(pattern=rf"{POOL_PATTERN}|^\*$")]
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
    legacy: bool = True
    """Also serve the revisions of 2025, on the same path (D11)."""
    sessions: bool = True
    """Give clients of 2025 sessions: streams of changes, questions to them, a log level (D11)."""
    tasks: bool = True
    """Offer durable tasks of tools that declare some; otherwise tools that are always tasks are left out (K1)."""
    body_version_wins: bool = False
    """Serve a request whose version header differs from the body, by the body: the protocol forbids it (D5)."""
    instructions: Text | None = None
    """The first text that a model reads; by default that of a single pool, and none of several pools."""

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
    def has_sessions(self) -> bool:
        """Whether the endpoint serves clients of 2025, with sessions."""
        return self.legacy and self.sessions

    @property
    def digest(self) -> str:
        """Names these settings, so that a catalog with other settings notices."""
        settings = self.model_dump(mode="json")
        del settings["sessions"]  # the catalog does not need it
        settings["names"] = dict(sorted(settings["names"].items()))
        if settings["tasks"]:  # written only if it differs, so that older digests stay
            del settings["tasks"]
        return digest_of(to_json(settings))


class EndpointSettings(Settings):
    """Settings that edges and the catalog share."""

    endpoints: Mapping[Name, Endpoint] = Field(
        default={"mcp": Endpoint(path="/mcp")},
        min_length=1,
        description="The MCP endpoints, as JSON: name to path, pools, names, title, version, instructions.",
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
