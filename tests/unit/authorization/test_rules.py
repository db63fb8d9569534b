"""Who a caller is."""

from __future__ import annotations

from mcpfleet.authorization.rules import admit_anonymous
from mcpfleet.contracts.principal import Principal


def test_mode_none_admits_everyone_as_nobody_in_particular() -> None:
    admitted = admit_anonymous(10.0)
    assert admitted.principal == Principal()
    assert admitted.principal.partition is None
    assert (admitted.lasts, admitted.reason) == (10.0, None)
