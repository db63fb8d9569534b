"""Every vector has its answer, from a real edge, over HTTP/1.1 and HTTP/2."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vectors import http1
from tests.vectors.http2 import Http2
from tests.vectors.matching import differences

FILES = sorted(Path(__file__).parent.glob("*.json"))
Address = Callable[[str], tuple[str, int]]


def cases(version: str) -> Iterator[Any]:
    for path in FILES:
        group = json.loads(path.read_text())
        for vector in group["vectors"]:
            if version in vector.get("http", ("1.1", "2")):
                name = f"{path.stem}: {vector['name']}"[:120]
                yield pytest.param(group["server"], vector, id=name, marks=pytest.mark.rule(*vector["rules"]))


@pytest.fixture(scope="session")
def connections(address: Address) -> Iterator[Callable[[str], Http2]]:
    """One HTTP/2 connection to each server, for all vectors: what is refused on one stream harms no other."""
    made: dict[str, Http2] = {}

    def of(server: str) -> Http2:
        if server not in made:
            made[server] = Http2(address(server))
        return made[server]

    yield of
    for each in made.values():
        each.__exit__()


@pytest.mark.parametrize(("server", "vector"), list(cases("1.1")))
def test_over_http_1(address: Address, server: str, vector: dict[str, Any]) -> None:
    exchange = http1.exchange_bytes if "bytes" in vector["request"] else http1.exchange
    answer = exchange(address(server), vector["request"])
    assert list(differences(answer, vector["expect"])) == []


@pytest.mark.parametrize(("server", "vector"), list(cases("2")))
def test_over_http_2(connections: Callable[[str], Http2], server: str, vector: dict[str, Any]) -> None:
    answer = connections(server).exchange(vector["request"])
    assert list(differences(answer, vector["expect"])) == []
