"""The base of every message of the control plane."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """A frozen value that crosses the bus.

    Fields are added, never changed in meaning, and unknown fields are ignored. So an old and a new process run side by
    side during a rollout.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
