"""Authorization's decisions: who a caller is. Pure functions."""

from __future__ import annotations

from mcpfleet.contracts.authorization import Admitted
from mcpfleet.contracts.principal import Principal


def admit_anonymous(lasts: float) -> Admitted:
    """Admit a caller as nobody in particular, which is what mode `none` makes of everyone.

    A credential that is presented is ignored, be it good or bad: nothing here could tell which it is, and a client
    that holds one for another server must be able to try this one out.

    Args:
        lasts: seconds for which an edge may go by the verdict.
    """
    return Admitted(principal=Principal(), lasts=lasts)
