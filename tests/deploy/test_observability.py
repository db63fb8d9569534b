"""observability: every query is one that Prometheus reads, of metrics and labels that the fleet has."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy import manifests
from tests.deploy.figures import FROM_PROMETHEUS, OBSERVABILITY, Query, dashboards, known, queries, rules
from tests.kit.kustomize import containers

KNOWN = known()
QUERIES = [pytest.param(query, id=query.where) for query in queries()]
COLLECTOR: dict[str, Any] = yaml.safe_load((OBSERVABILITY / "collector.yaml").read_text())


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_reads_metrics_and_labels_that_the_fleet_has(query: Query) -> None:
    assert query.names() <= KNOWN.keys()
    labels = {label for name in query.names() for label in KNOWN[name]}
    assert query.labels() <= labels | FROM_PROMETHEUS


def test_a_query_of_what_nobody_exports_would_be_found() -> None:
    query = Query("", "sum by (le, pool) (rate(mcpfleet_edge_queue_wait_seconds_bucket{a='b'}[$__rate_interval])) > 1")
    assert query.names() == {"mcpfleet_edge_queue_wait_seconds_bucket"}
    assert query.labels() == {"le", "pool", "a"}


def test_a_dashboard_shows_the_whole_fleet() -> None:
    """Calls, latency, errors, streams, hints, tasks by state, leases, queue depth and drops."""
    [fleet] = [content for name, content in dashboards() if name == "fleet"]
    read = {
        name
        for panel in fleet["panels"]
        for target in panel.get("targets", [])
        for name in Query("", target["expr"]).names()
    }
    assert read >= {
        "mcp_server_operation_duration_seconds_count", "mcp_server_operation_duration_seconds_bucket",
        "mcpfleet_edge_streams_open", "mcpfleet_edge_streams_told_total", "mcpfleet_tasks_tasks",
        "mcpfleet_tasks_lapsed_total", "mcpfleet_edge_queued", "mcpfleet_bus_undelivered_total",
    }  # fmt: skip


@pytest.mark.parametrize("content", [content for _, content in dashboards()], ids=[name for name, _ in dashboards()])
def test_a_dashboard_can_be_imported(content: dict[str, Any]) -> None:
    numbers = [panel["id"] for panel in content["panels"]]
    assert len(set(numbers)) == len(numbers)
    taken: set[tuple[int, int]] = set()
    for panel in content["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    assert len({name for name, _ in dashboards()}) == len({each["uid"] for _, each in dashboards()})


@pytest.mark.parametrize("rule", rules("alerts.yaml"), ids=[rule["alert"] for rule in rules("alerts.yaml")])
def test_an_alert_says_what_it_is_and_what_to_do_in_a_line(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning"}
    for text in (rule["annotations"]["summary"], rule["annotations"]["runbook"]):
        assert text.endswith(".")
        assert "\n" not in text.strip()
    assert rule["annotations"].keys() == {"summary", "runbook"}


def test_alerts_have_names_of_their_own() -> None:
    names = [rule["alert"] for rule in rules("alerts.yaml")]
    assert len(set(names)) == len(names) > 10


def test_every_figure_of_a_scaler_comes_from_the_adapter() -> None:
    adapter = yaml.safe_load((OBSERVABILITY / "adapter.yaml").read_text())
    pods = {rule["seriesQuery"].partition("{")[0] for rule in adapter["rules"]}
    external = {rule["seriesQuery"].partition("{")[0] for rule in adapter["externalRules"]}
    metrics = [
        metric
        for scaler in manifests.of_kind("production", "HorizontalPodAutoscaler").values()
        for metric in scaler["spec"]["metrics"]
    ]
    assert {metric["pods"]["metric"]["name"] for metric in metrics if metric["type"] == "Pods"} == pods
    assert {metric["external"]["metric"]["name"] for metric in metrics if metric["type"] == "External"} == external


def test_prometheus_finds_every_process_by_its_admin_port() -> None:
    configuration = yaml.safe_load((OBSERVABILITY / "prometheus.yaml").read_text())
    assert all((OBSERVABILITY / file).is_file() for file in configuration["rule_files"])
    [job] = [job for job in configuration["scrape_configs"] if job["job_name"] == "mcpfleet"]
    [keep] = [each for each in job["relabel_configs"] if each.get("action") == "keep"]
    part_of, port = keep["regex"].split(";")
    for workload in manifests.fleet("production").values():
        assert manifests.labels(workload)["app.kubernetes.io/part-of"] == part_of
        assert port in {each["name"] for each in containers(workload)[0]["ports"]}


def test_the_collector_keeps_what_failed_and_what_was_slow() -> None:
    sampling = COLLECTOR["processors"]["tail_sampling"]
    policies = {policy["type"]: policy for policy in sampling["policies"]}
    assert policies["status_code"]["status_code"]["status_codes"] == ["ERROR"]
    assert policies["latency"]["latency"]["threshold_ms"] <= 1000
    assert 0 < policies["probabilistic"]["probabilistic"]["sampling_percentage"] < 100
    # Longer than a tool may run where none says otherwise: the edge's span comes last.
    assert int(sampling["decision_wait"].removesuffix("s")) > 60


def test_the_collectors_pipelines_are_made_of_what_it_defines() -> None:
    pipelines = COLLECTOR["service"]["pipelines"]
    assert pipelines.keys() == {"traces", "metrics"}
    for pipeline in pipelines.values():
        for part in ("receivers", "processors", "exporters"):
            assert set(pipeline[part]) <= COLLECTOR[part].keys()
        assert pipeline["processors"][0] == "memory_limiter"
    assert set(COLLECTOR["service"]["extensions"]) <= COLLECTOR["extensions"].keys()
    # Batches are made of the traces that are kept, so sampling stands before.
    assert pipelines["traces"]["processors"] == ["memory_limiter", "tail_sampling", "batch"]


def test_the_collectors_addresses_are_the_ports_of_its_pod() -> None:
    [container] = containers(manifests.workloads("production")["otel-collector"])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    protocols = COLLECTOR["receivers"]["otlp"]["protocols"]
    [reader] = COLLECTOR["service"]["telemetry"]["metrics"]["readers"]
    told = {
        "otlp-grpc": protocols["grpc"]["endpoint"],
        "otlp-http": protocols["http"]["endpoint"],
        "metrics": COLLECTOR["exporters"]["prometheus"]["endpoint"],
        "health": COLLECTOR["extensions"]["health_check"]["endpoint"],
        "own-metrics": f"0.0.0.0:{reader['pull']['exporter']['prometheus']['port']}",
    }
    assert told == {name: f"0.0.0.0:{port}" for name, port in ports.items()}
    environment = {each["name"] for each in container["env"]}
    assert COLLECTOR["exporters"]["otlp/jaeger"]["endpoint"] == "${env:TRACES_ENDPOINT}"
    assert "TRACES_ENDPOINT" in environment
