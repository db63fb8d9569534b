"""Authorization's settings."""

from __future__ import annotations

from pydantic import Field

from mcpfleet.process.settings import ProcessSettings, Seconds


class AuthorizationSettings(ProcessSettings):
    """What authorization reads at its start."""

    admission_lasts: Seconds = Field(default=10.0, gt=0, description="How long an edge may go by a verdict.")
    authorization_concurrency: int = Field(
        default=256, ge=1, description="How many questions authorization answers at once."
    )
