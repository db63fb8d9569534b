"""A console keeps the last stats and their rates, within bounds that no sender can stretch."""

from __future__ import annotations

import pytest

from mcpfleet.console.nodes import CLOSE, FORGOTTEN_AFTER, MOST, MOST_ALIKE, SILENT_AFTER, Nodes
from mcpfleet.contracts.stats import EVERY
from tests.unit.console.samples import NOW, edge, heard, says, worker


def test_a_counters_rate_is_its_growth_between_two_messages() -> None:
    nodes = Nodes()
    heard(nodes, edge(), NOW, says({"requests": 10}))
    heard(nodes, edge(), NOW + 2, says({"requests": 15, "told": 3}))
    [node] = nodes.nodes(NOW + 2)
    assert (node.number("requests"), node.rate("requests"), node.rate("told")) == (15, 2.5, 0)


def test_a_number_that_falls_has_no_rate() -> None:
    nodes = Nodes()
    heard(nodes, edge(), NOW, says({"hints": 10}))
    heard(nodes, edge(), NOW + 2, says({"hints": 4}))
    assert nodes.nodes(NOW + 2)[0].rate("hints") == 0


def test_a_process_that_began_again_has_no_rate_yet() -> None:
    nodes = Nodes()
    heard(nodes, edge(), NOW, says({"requests": 10}))
    heard(nodes, edge(), NOW + 2, says({"requests": 30}, started=2.0))
    assert nodes.nodes(NOW + 2)[0].rate("requests") == 0


def test_nobody_keeps_a_console_busy_by_talking() -> None:
    nodes = Nodes()
    assert heard(nodes, worker(), NOW)
    assert not heard(nodes, worker(), NOW + CLOSE / 2)
    assert heard(nodes, worker(), NOW + CLOSE)


def test_a_pool_that_names_many_processes_takes_no_room_from_others() -> None:
    nodes = Nodes()
    taken = [heard(nodes, worker(f"{number:016x}"), NOW) for number in range(MOST_ALIKE + 5)]
    assert taken.count(True) == MOST_ALIKE
    assert nodes.unshown
    assert heard(nodes, worker(pool="other"), NOW)
    assert heard(nodes, edge(), NOW)


def test_there_is_an_end_to_pools() -> None:
    nodes = Nodes()
    taken = [heard(nodes, worker(pool=f"p{number}"), NOW) for number in range(MOST + 5)]
    assert taken.count(True) == MOST


def test_who_is_silent_is_shown_for_a_minute_and_makes_room_then() -> None:
    nodes = Nodes()
    heard(nodes, worker(), NOW)
    [node] = nodes.nodes(NOW + FORGOTTEN_AFTER)
    assert node.silence(NOW + FORGOTTEN_AFTER) == FORGOTTEN_AFTER
    assert nodes.nodes(NOW + FORGOTTEN_AFTER + 0.1) == []
    taken = [heard(nodes, worker(f"{number:016x}"), NOW + 100) for number in range(MOST_ALIKE + 1)]
    assert taken.count(True) == MOST_ALIKE


def test_who_said_that_it_stops_is_forgotten_when_it_is_silent() -> None:
    nodes = Nodes()
    heard(nodes, worker(), NOW, says(stopping=True))
    assert len(nodes.nodes(NOW + SILENT_AFTER)) == 1
    assert nodes.nodes(NOW + SILENT_AFTER + 0.1) == []


@pytest.mark.parametrize(("passed", "silence"), [(0, 0), (EVERY * 3, 0), (EVERY * 4, EVERY * 4)])
def test_a_message_or_two_may_be_lost_before_a_process_is_called_silent(passed: float, silence: float) -> None:
    nodes = Nodes()
    heard(nodes, edge(), NOW)
    assert nodes.nodes(NOW)[0].silence(NOW + passed) == silence
