"""How many questions a service has answered, as it tells an operator by NATS's own means (`nats micro stats`)."""

from __future__ import annotations

import json

import nats

from mcpfleet.process.settings import ProcessSettings

_ANSWERS_WITHIN = 5.0


async def answered(operator: ProcessSettings, service: str, subject: str) -> int:
    """Count the questions that came on a subject.

    Args:
        operator: the settings by which the NATS user `operator` connects.
        service: the service, of which one process runs.
        subject: without the fleet's prefix.
    """
    password = operator.nats_password.get_secret_value() if operator.nats_password else None
    client = await nats.connect(
        operator.nats_url, user="operator", password=password, inbox_prefix=b"mcpfleet.inbox.operator.kit"
    )
    try:
        message = await client.request(f"$SRV.STATS.mcpfleet-{service}", b"", timeout=_ANSWERS_WITHIN)
    finally:
        await client.close()
    endpoints = json.loads(message.data)["endpoints"]
    return sum(each["num_requests"] for each in endpoints if each["subject"].endswith(subject))
