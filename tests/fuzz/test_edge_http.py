"""No request hurts the edge: the short form of the fuzzer (`tests.fuzz.run`)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.changes import changed
from tests.fuzz.edge_http import EdgeUnderFuzz, Hurt, check, corpus
from tests.fuzz.run import has_atheris
from tests.unit.edge.asgi import Exchange

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def edge() -> Iterator[EdgeUnderFuzz]:
    with EdgeUnderFuzz() as made:
        yield made


def test_the_vectors_hurt_nobody(edge: EdgeUnderFuzz) -> None:
    statuses = {edge(data).status for data in corpus()}
    assert {200, 202, 400, 403, 404, 405, 406, 415} <= statuses, "the corpus reaches every rung"


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changed())
def test_changed_vectors_hurt_nobody(edge: EdgeUnderFuzz, data: bytes) -> None:
    edge(data)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_bytes_hurt_nobody(edge: EdgeUnderFuzz, data: bytes) -> None:
    edge(data)


def test_a_500_is_noticed() -> None:
    hurt = Exchange.__new__(Exchange)
    hurt.sent = [
        {"type": "http.response.start", "status": 500, "headers": [(b"content-length", b"0")]},
        {"type": "http.response.body", "body": b""},
    ]
    with pytest.raises(Hurt):
        check(hurt)


@pytest.mark.skipif(not has_atheris(), reason="atheris has no wheel for this platform, or is not installed")
def test_a_few_seconds_by_coverage(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--seconds", "5", "--folder", str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr[-3_000:]
