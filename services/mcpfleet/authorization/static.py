"""Tokens that a secret file lists, each with its principal."""

from __future__ import annotations

import hashlib
import json
import time
import tomllib
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator

from mcpfleet.authorization.verifier import CredentialRefused, Reason, Trusted, Verified, for_another_audience
from mcpfleet.contracts.access import is_for
from mcpfleet.contracts.manifest import DIGEST_LENGTH
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError

_MOST_TOKENS = 10_000
"""Entries of the file."""


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Moment = datetime | float


class StaticToken(BaseModel):
    """One entry of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    token: SecretStr | None = None
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """The token's digest in place of the token, so that a reader of the file cannot use it."""
    subject: str = Field(min_length=1, max_length=1024)
    client: str | None = None
    tenant: str | None = None
    scopes: tuple[str, ...] = ()
    audience: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(min_length=1)
    """URLs or names of the endpoints for which it is valid."""
    expires: Moment | None = None
    issued: Moment | None = None

    @model_validator(mode="after")
    def _names_one_token(self) -> StaticToken:
        if (self.token is None) == (self.sha256 is None):
            raise ValueError("has either `token` or `sha256`")
        return self

    @property
    def digest(self) -> str:
        """The digest by which the token is found."""
        return self.sha256 or digest((self.token or SecretStr("")).get_secret_value())


class StaticTokens(BaseModel):
    """The file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    tokens: tuple[StaticToken, ...] = Field(min_length=1, max_length=_MOST_TOKENS)


class StaticVerifier:
    """Verifies tokens with the list. A token is looked up by its digest, so timing does not show how much is right."""

    def __init__(self, text: str) -> None:
        """Read the list.

        Raises:
            ConfigurationError: it is malformed; the sentence names the entry and the rule, and no token.
        """
        self._tokens = {entry.digest: entry for entry in _read(text).tokens}
        self._list = digest(text)[:DIGEST_LENGTH]
        self._began = time.monotonic()

    async def verify(self, token: str, endpoint: str, resource: str) -> Verified:
        """Look the token up."""
        entry = self._tokens.get(digest(token))
        if entry is None:
            raise CredentialRefused("it is not listed (MCPFLEET_TOKENS_FILE)", Reason.UNKNOWN)
        if endpoint not in entry.audience and not is_for(entry.audience, resource):
            raise for_another_audience()
        principal = Principal(subject=entry.subject, client=entry.client, tenant=entry.tenant, scopes=entry.scopes)
        return Verified(principal, _seconds(entry.expires), _seconds(entry.issued), self._list)

    def trusted(self) -> Trusted:
        """Return the whole list as one key: another list's verdicts do not hold by this one."""
        return Trusted((self._list,), time.monotonic() - self._began)


def digest(token: str) -> str:
    """The SHA-256 digest under which a token may be listed."""
    return hashlib.sha256(token.encode()).hexdigest()


def _read(text: str) -> StaticTokens:
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
        return StaticTokens.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False, include_context=False)[:8]
        lines = (f"MCPFLEET_TOKENS_FILE: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults)
        raise ConfigurationError(*lines) from None
    except ValueError:  # whose sentence may quote a line of the file
        raise ConfigurationError("MCPFLEET_TOKENS_FILE: neither JSON nor TOML") from None


def _seconds(moment: Moment | None) -> float | None:
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return moment
