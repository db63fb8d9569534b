"""Where callers without credentials may be served."""

from __future__ import annotations

import pytest

from mcpfleet.contracts.access import refuse_exposed, refuse_nameless
from mcpfleet.process.host import is_loopback
from mcpfleet.process.settings import host_and_port


@pytest.mark.parametrize(
    ("bind", "loopback"),
    [
        ("127.0.0.1:8000", True),
        ("127.8.9.10:0", True),
        ("0.0.0.0:8000", False),
        (":8000", False),
        ("10.0.0.7:8000", False),
        ("192.168.1.1:8000", False),
        ("[::1]:8000", True),
        ("[::]:8000", False),
        ("[fe80::1%eth0]:8000", False),
        ("[2001:db8::1]:8000", False),
        ("[::ffff:127.0.0.1]:8000", True),
        ("[::ffff:10.0.0.7]:8000", False),
        ("localhost:8000", True),
        ("localhost.example:8000", False),
        ("edge.example:8000", False),
        ("127.0.0.1.example:8000", False),
        ("*:8000", False),
    ],
)
def test_which_addresses_only_this_host_reaches(bind: str, loopback: bool) -> None:
    assert is_loopback(host_and_port(bind)[0]) is loopback
    assert (refuse_exposed(bind, "none", allow_anonymous=False) is None) is loopback


def test_the_sentence_names_the_settings() -> None:
    sentence = refuse_exposed("0.0.0.0:8000", "none", allow_anonymous=False)
    assert sentence is not None
    for name in ("MCPFLEET_BIND: 0.0.0.0:8000", "MCPFLEET_AUTHORIZATION=none", "MCPFLEET_ALLOW_ANONYMOUS=true"):
        assert name in sentence


def test_an_operator_may_say_so() -> None:
    assert refuse_exposed("0.0.0.0:8000", "none", allow_anonymous=True) is None


def test_callers_with_credentials_may_come_from_anywhere() -> None:
    assert refuse_exposed("0.0.0.0:8000", "static", allow_anonymous=False) is None


@pytest.mark.rule("M61")
@pytest.mark.parametrize(
    ("bind", "mode", "public_url", "is_fine"),
    [
        ("0.0.0.0:8000", "jwt", "", False),
        ("0.0.0.0:8000", "jwt", "https://mcp.example.com", True),
        ("127.0.0.1:8000", "jwt", "", True),
        ("0.0.0.0:8000", "none", "", True),
    ],
)
def test_tokens_from_elsewhere_need_a_name_that_they_are_for(
    bind: str, mode: str, public_url: str, is_fine: bool
) -> None:
    sentence = refuse_nameless(bind, mode, public_url)
    assert (sentence is None) is is_fine
    assert sentence is None or "MCPFLEET_PUBLIC_URL" in sentence
