"""The metrics that dashboards, alerts and rules read, and those that the fleet exports, each with its labels."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import promql_parser as promql
import yaml

from mcpfleet.telemetry import instruments
from mcpfleet.telemetry.exposition import Exposition
from mcpfleet.telemetry.metrics import Metrics
from tests.deploy.manifests import ROOT

OBSERVABILITY: Final = ROOT / "observability"
FROM_PROMETHEUS: Final = {"namespace", "pod", "app", "job", "instance", "service", "le"}
"""Labels that prometheus.yaml and the exposition give to every sample, and a histogram to its buckets."""


@dataclass(frozen=True)
class Query:
    """One expression, and where it stands."""

    where: str
    text: str

    def names(self) -> set[str]:
        """The metrics that it reads."""
        return {str(selector.name) for selector in self._selectors()}

    def labels(self) -> set[str]:
        """The labels that it chooses and groups by."""
        found: set[str] = set()
        for part in self._parts():
            if isinstance(part, promql.VectorSelector):
                found |= {matcher.name for matcher in part.matchers.matchers}
            elif isinstance(part, promql.AggregateExpr) and part.modifier is not None:
                found |= set(part.modifier.labels)
        return found

    def _selectors(self) -> Iterator[promql.VectorSelector]:
        return (part for part in self._parts() if isinstance(part, promql.VectorSelector))

    def _parts(self) -> list[Any]:
        parts: list[Any] = []

        def visit(part: Any) -> bool:
            parts.append(part.vector_selector if isinstance(part, promql.MatrixSelector) else part)
            return True

        promql.walk(promql.parse(self.text.replace("$__rate_interval", "5m")), visit)
        return parts


def dashboards() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each dashboard's name and content."""
    for path in sorted((OBSERVABILITY / "dashboards").glob("*.json")):
        yield path.stem, json.loads(path.read_text())


def rules(file: str) -> list[dict[str, Any]]:
    """The rules of a file, of all its groups."""
    groups = yaml.safe_load((OBSERVABILITY / file).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries() -> Iterator[Query]:
    """Every expression of dashboards, alerts, recording rules, and the scalers' adapter."""
    for name, content in dashboards():
        for panel in content["panels"]:
            for target in panel.get("targets", []):
                yield Query(f"{name}: {panel['title']}", target["expr"])
    for rule in rules("alerts.yaml"):
        yield Query(f"alert {rule['alert']}", rule["expr"])
    for rule in rules("rules.yaml"):
        yield Query(f"rule {rule['record']}", rule["expr"])
    adapter = yaml.safe_load((OBSERVABILITY / "adapter.yaml").read_text())
    for rule in [*adapter["rules"], *adapter["externalRules"]]:
        yield Query("adapter", rule["seriesQuery"])


def every_instrument() -> Metrics:
    """The metrics of a process that was every service at once."""
    metrics = Metrics()
    for _, found in inspect.getmembers(instruments, inspect.isclass):
        make: Callable[[Metrics], object] = found
        if make.__module__ == instruments.__name__:
            make(metrics)
    return metrics


def exported() -> dict[str, set[str]]:
    """Return the metrics that the code can export, by Prometheus' names, each with its labels."""
    metrics = every_instrument()
    labels = {_plain(family.name): {_plain(label) for label in family.labels} for family in metrics.read()}
    names: dict[str, set[str]] = {}
    for name, kind in types(Exposition({"any": metrics}).text().decode()).items():
        own = next((labels[key] for key in sorted(labels, key=len, reverse=True) if name.startswith(key)), set())
        names |= dict.fromkeys(series(name, kind), own)
    return names


def types(exposition: str) -> dict[str, str]:
    """Each metric of an answer of /metrics, with its kind."""
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", exposition, re.MULTILINE))


def series(name: str, kind: str) -> list[str]:
    """The names by which a metric is asked for."""
    return [f"{name}_{part}" for part in ("bucket", "count", "sum")] if kind == "histogram" else [name]


def recorded() -> dict[str, set[str]]:
    """Return the metrics that recording rules add, with the labels that they group by."""
    return {rule["record"]: Query("", rule["expr"]).labels() for rule in rules("rules.yaml")}


def known() -> Mapping[str, set[str]]:
    """Every metric that a query may name."""
    return recorded() | exported()


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
