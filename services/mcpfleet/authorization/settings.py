"""Authorization's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from mcpfleet.contracts.access import AccessSettings, SecureUrl
from mcpfleet.process.settings import Names, ProcessSettings, Seconds
from mcpfleet.store.settings import StoreSettings

SIGNATURES: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms whose signatures only the issuer can make, and anybody can check: never `none`, never a shared secret."""


class AuthorizationSettings(AccessSettings, StoreSettings, ProcessSettings):
    """The settings that authorization reads at its start."""

    admission_lasts: Seconds = Field(default=10.0, gt=0, description="How long an edge may use a verdict.")
    admission_lasts_heard: Seconds = Field(
        default=300.0,
        gt=0,
        description="jwt, static: the same while the edge hears authorization and the token's key is good.",
    )
    refusal_lasts: Seconds = Field(default=1.0, description="How long an edge may use a refusal.")
    authorization_concurrency: int = Field(
        default=256, ge=1, description="How many requests authorization answers at once."
    )
    authorization_timeout: Seconds = Field(
        default=5.0, gt=0, description="How long checking a credential may take, also with your own authorizer."
    )
    authority_hint: Seconds = Field(default=2.0, gt=0, description="How often edges are told the newest revocation.")
    revocation_kept: Seconds = Field(
        default=7 * 86_400.0, gt=0, description="How long a revocation is kept. It must be longer than any token lives."
    )

    tokens: SecretStr = Field(default=SecretStr(""), description="static: the tokens, as JSON or TOML. Prefer a file.")
    authorizer: str = Field(
        default="", description="custom: the module:function that checks a token and returns its principal."
    )

    policy: str = Field(
        default="",
        description="The module:object that groups callers, hides what they may not see, and judges their streams.",
    )

    jwks_url: SecureUrl = Field(
        default="", description="jwt: the URL of the issuer's keys. Empty reads it from the issuer's metadata."
    )
    jwks_lasts: Seconds = Field(
        default=5.0,
        gt=0,
        description="jwt: how often the keys are fetched, so how long a removed key may still be used.",
    )
    jwks_stale: Seconds = Field(
        default=86_400.0, gt=0, description="jwt: how long keys are used while they cannot be fetched."
    )
    jwks_cooldown: Seconds = Field(
        default=10.0, gt=0, description="jwt: the shortest time between two fetches for unknown keys."
    )
    jwt_algorithms: Names = Field(
        default=SIGNATURES, min_length=1, description="jwt: the algorithms with which a token may be signed."
    )

    introspection_url: SecureUrl = Field(
        default="", description="introspection: the URL of the issuer's introspection endpoint."
    )
    introspection_client: str = Field(default="", description="introspection: our client id at the issuer.")
    introspection_secret: SecretStr = Field(default=SecretStr(""), description="introspection: that client's secret.")

    tenant_claim: str = Field(default="", description="The claim that names a token's tenant, for example `org_id`.")
    scope_implies: Mapping[str, tuple[str, ...]] = Field(
        default={}, description="The scopes that a scope implies, as JSON: name to names."
    )

    @field_validator("jwt_algorithms")
    @classmethod
    def _are_signatures(cls, algorithms: tuple[str, ...]) -> tuple[str, ...]:
        strangers = set(algorithms).difference(SIGNATURES)
        if strangers:
            raise ValueError(f"{min(strangers)} is none of {', '.join(SIGNATURES)}")
        return algorithms

    @model_validator(mode="after")
    def _has_what_its_mode_needs(self) -> Self:
        needed = {
            "none": {},
            "static": {"MCPFLEET_TOKENS_FILE": self.tokens.get_secret_value()},
            "jwt": {"MCPFLEET_ISSUER": self.issuer},
            "introspection": {
                "MCPFLEET_INTROSPECTION_URL": self.introspection_url,
                "MCPFLEET_INTROSPECTION_CLIENT": self.introspection_client,
                "MCPFLEET_INTROSPECTION_SECRET_FILE": self.introspection_secret.get_secret_value(),
            },
            "custom": {"MCPFLEET_AUTHORIZER": self.authorizer},
        }[self.authorization]
        for name, value in needed.items():
            if not value:
                raise ValueError(f"{name}: must be set where MCPFLEET_AUTHORIZATION={self.authorization}")
        return self
