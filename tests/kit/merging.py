"""Changes of Kubernetes resources: strategic merge patches and JSON patches, as far as deploy/k8s uses them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

_KEYS: Final = {"containers": "name", "initContainers": "name", "volumes": "name", "env": "name"}
"""By which member Kubernetes tells the elements of a list apart; other lists are replaced whole."""
_ADDRESS: Final = {"volumeMounts": "mountPath"}


def merged(resource: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a patch in, as Kubernetes does for its own kinds: null deletes, some lists merge by a member."""
    result = dict(resource)
    for name, change in patch.items():
        if name.startswith("$"):
            raise NotImplementedError(f"{name} in a patch")
        if change is None:
            result.pop(name, None)
        elif isinstance(change, dict) and isinstance(result.get(name), dict):
            result[name] = merged(result[name], change)
        elif isinstance(change, list) and name in (_KEYS | _ADDRESS):
            result[name] = _merged_lists(result.get(name, []), change, (_KEYS | _ADDRESS)[name])
        else:
            result[name] = change
    return result


def _merged_lists(before: list[Any], change: list[Any], key: str) -> list[Any]:
    changes = {element[key]: element for element in change}
    kept = [merged(element, changes.pop(element[key], {})) for element in before]
    return [*changes.values(), *kept]


def apply_operations(resource: dict[str, Any], operations: Iterable[Mapping[str, Any]]) -> None:
    """Apply a JSON patch (RFC 6902) of the operations add, replace and remove."""
    for operation in operations:
        *path, last = operation["path"].lstrip("/").split("/")
        place: Any = resource
        for step in path:
            place = place[_step(place, step)]
        match operation["op"]:
            case "add" if isinstance(place, list):
                place.insert(len(place) if last == "-" else int(last), operation["value"])
            case "add":
                place[_unescaped(last)] = operation["value"]
            case "replace":
                place.pop(_step(place, last))  # what is not there cannot be replaced
                apply_operations(resource, [{**operation, "op": "add"}])
            case "remove":
                del place[_step(place, last)]
            case other:
                raise NotImplementedError(f"the operation {other}")


def _step(place: Any, step: str) -> Any:
    return int(step) if isinstance(place, list) else _unescaped(step)


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
