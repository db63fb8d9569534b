"""A function of the operator's own."""

from __future__ import annotations

import time

import anyio
import pytest
from structlog.testing import LogCapture

from mcpfleet.authorization.custom import Answer, CustomVerifier, load
from mcpfleet.authorization.verifier import CredentialRefused, CredentialUnchecked, Verified
from mcpfleet.contracts.principal import Principal
from mcpfleet.process.errors import ConfigurationError
from tests.kit.logs import captured

ANN = Principal(subject="ann")
CAPTURE = LogCapture()
LOG = captured(CAPTURE)


async def authorizer(token: str, endpoint: str, resource: str) -> Answer:
    """The principals of the tests' tokens."""
    match token:
        case "good":
            return ANN
        case "short":
            return ANN, 30
        case "slow":
            await anyio.sleep_forever()
        case "broken":
            raise RuntimeError(f"no use for {token} of {endpoint} at {resource}")
    return None


async def returning(answer: Answer) -> Verified:
    """Verify by an authorizer that returns this."""

    async def authorize(_token: str, _endpoint: str, _resource: str) -> Answer:
        return answer

    return await CustomVerifier(authorize, timeout=1, log=LOG).verify("t", "mcp", "r")


def custom() -> CustomVerifier:
    return CustomVerifier(authorizer, timeout=0.1, log=LOG)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 10**400])
async def test_a_time_that_is_none_decides_nothing(seconds: float) -> None:
    with pytest.raises(CredentialUnchecked):
        await returning((ANN, seconds))


async def test_it_says_whom_a_token_speaks_for_and_for_how_long() -> None:
    assert (await custom().verify("good", "mcp", "r")).principal == ANN
    short = await custom().verify("short", "mcp", "r")
    assert short.expires == pytest.approx(time.time() + 30, abs=5)


@pytest.mark.rule("D10")
@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (Principal(client="cli", tenant="acme"), Principal(subject="cli", client="cli", tenant="acme")),
        (Principal(subject="", client="cli", scopes=("a",)), Principal(subject="cli", client="cli", scopes=("a",))),
        (Principal(subject="ann", client="cli"), Principal(subject="ann", client="cli")),
    ],
)
@pytest.mark.parametrize("with_seconds", [True, False])
async def test_a_client_that_speaks_for_nobody_else_is_its_own_subject(
    given: Principal, taken: Principal, *, with_seconds: bool
) -> None:
    assert (await returning((given, 30) if with_seconds else given)).principal == taken


@pytest.mark.rule("N7")
@pytest.mark.parametrize("given", [Principal(), Principal(tenant="acme"), Principal(subject="", scopes=("admin",))])
@pytest.mark.parametrize("with_seconds", [True, False])
async def test_whoever_has_no_name_is_refused(given: Principal, *, with_seconds: bool) -> None:
    with pytest.raises(CredentialRefused, match="neither a subject nor a client"):
        await returning((given, 30) if with_seconds else given)


async def test_none_is_nobody() -> None:
    with pytest.raises(CredentialRefused):
        await custom().verify("unknown", "mcp", "r")


@pytest.mark.rule("N7")
@pytest.mark.parametrize("token", ["slow", "broken"])
async def test_it_never_admits_by_failing_and_its_words_are_not_told(token: str) -> None:
    with pytest.raises(CredentialUnchecked) as raised:
        await custom().verify(token, "mcp", "r")
    assert token not in f"{raised.value} {CAPTURE.entries}"


def test_it_is_imported_by_name() -> None:
    assert load(f"{__name__}:authorizer") is not None


@pytest.mark.parametrize("target", ["nowhere:function", "json:nothing", "json", "json:__name__"])
def test_a_name_that_leads_nowhere_is_the_operators_mistake(target: str) -> None:
    with pytest.raises(ConfigurationError, match="MCPFLEET_AUTHORIZER"):
        load(target)
