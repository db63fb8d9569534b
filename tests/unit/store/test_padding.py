"""Lists of parameters: few lengths, the same members."""

from __future__ import annotations

from mcpfleet.store.sql import padded


def test_a_list_is_padded_to_a_power_of_two_with_what_it_has() -> None:
    lengths = {len(padded(list(range(number)))) for number in range(1, 65)}
    assert lengths == {1, 2, 4, 8, 16, 32, 64}
    assert all(set(padded(list(range(number)))) == set(range(number)) for number in range(65))
    assert padded([]) == []
