"""What every message of the control plane has in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen value that crosses the bus.

    Fields are added, never changed in meaning: a process ignores what it does not know, so that an old and a new
    one run side by side during a rollout.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
