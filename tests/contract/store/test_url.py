"""The part of MCPFLEET_STORE_URL that may be printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcpfleet.store.settings import read_url


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("postgresql://me:pw@db.example:5432/fleet", "postgresql://db.example:5432/fleet"),
        ("postgres://me:pw@db.example/fleet?sslmode=require&password=pw", "postgresql://db.example/fleet"),
        ("postgresql://me@[::1]:5432/fleet", "postgresql://[::1]:5432/fleet"),
        ("postgresql://me:pw@a:1,b:2/fleet", "postgresql://a:1,b:2/fleet"),
        ("postgresql://:@/fleet?host=/run/postgresql", "postgresql:///fleet"),
        ("sqlite:////var/lib/fleet.db", "sqlite:////var/lib/fleet.db"),
        ("postgresql://me:p@w@host/fleet", "postgresql://…"),
        ("postgresql://me:p/w@host/fleet", "postgresql://…"),
        ("postgresql://me:p?w@host/fleet", "postgresql://…"),
        ("postgresql://me:secret", "postgresql://…"),
    ],
)
def test_an_address_prints_without_its_secrets(url: str, printed: str) -> None:
    assert read_url(url).where == printed
    assert repr(read_url(url)) == f"StoreUrl({printed})"


@given(password=st.text(alphabet="#/?@:%[]&=,abc", min_size=1, max_size=12))
def test_no_password_however_badly_escaped_is_printed(password: str) -> None:
    secret = f"S3{password}3S"
    assert secret not in repr(read_url(f"postgresql://me:{secret}@db/fleet?password={secret}"))
    assert "S3" not in read_url(f"postgresql://me:{secret}@db/fleet").where
