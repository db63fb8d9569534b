"""What edges are answered."""

from __future__ import annotations

import math

import pytest
from pydantic import SecretStr

from mcpfleet.authorization.actor import AuthorizationActor
from mcpfleet.authorization.settings import AuthorizationSettings
from mcpfleet.bus.actor import Asked
from mcpfleet.contracts.authorization import Admit
from mcpfleet.contracts.principal import Principal
from mcpfleet.telemetry.trace import TraceContext


@pytest.mark.parametrize("credential", [None, SecretStr("hunter2")])
async def test_in_mode_none_a_credential_changes_nothing(credential: SecretStr | None) -> None:
    actor = AuthorizationActor(AuthorizationSettings(admission_lasts=7.0))
    asked = Asked({}, math.inf, TraceContext.fresh(sampled=False))
    admitted = await actor.admit(Admit(endpoint="mcp", credential=credential), asked)
    assert (admitted.principal, admitted.lasts) == (Principal(), 7.0)
