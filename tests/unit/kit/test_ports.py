"""Ports that tests choose for the programs that they start."""

from __future__ import annotations

import socket

import pytest

from tests.kit import ports
from tests.kit.ports import free_port, highest


def test_no_port_is_chosen_twice_or_given_to_a_connection() -> None:
    chosen = [free_port() for _ in range(200)]
    assert len(set(chosen)) == len(chosen)
    assert max(chosen) < highest()


def test_a_port_that_somebody_has_is_not_chosen() -> None:
    own = free_port()
    with socket.create_server(("127.0.0.1", own)):
        assert not ports._is_free(own)
    assert ports._is_free(own)


def test_tests_that_run_side_by_side_choose_among_ports_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {}
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        chosen[worker] = {free_port() % 16 for _ in range(20)}
    assert [len(each) for each in chosen.values()] == [1, 1, 1]
    assert len(set.union(*chosen.values())) == 3
