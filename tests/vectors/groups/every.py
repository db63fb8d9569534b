"""The vectors, group by group of the ladder (T11)."""

from __future__ import annotations

from typing import Final

from tests.vectors.groups import (
    authorization,
    custom_headers,
    envelope,
    era,
    form,
    framing,
    host_origin_cors,
    legacy,
    limits,
    lists,
    meta,
    method_and_structure,
    mirrored_headers,
    notifications,
    order,
    prompts,
    request_state,
    results,
    route,
    strict_json,
    target,
    version,
)
from tests.vectors.making import Group

GROUPS: Final[tuple[Group, ...]] = (
    limits.GROUP,
    framing.GROUP,
    route.GROUP,
    host_origin_cors.GROUP,
    form.GROUP,
    authorization.GROUP,
    strict_json.GROUP,
    envelope.GROUP,
    era.GROUP,
    meta.GROUP,
    mirrored_headers.GROUP,
    version.GROUP,
    method_and_structure.GROUP,
    target.GROUP,
    custom_headers.GROUP,
    custom_headers.STRICT,
    request_state.STATE,
    request_state.CAPABILITIES,
    notifications.GROUP,
    lists.GROUP,
    results.GROUP,
    prompts.GROUP,
    prompts.RESOURCES,
    prompts.COMPLETION,
    legacy.GROUP,
    order.GROUP,
)
