"""
The Grafana dashboard and the page about metrics match the served metrics.

Every PromQL expression is parsed: each metric and each label that it names must be in a scrape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest

from shoal.cli import conversion_metrics
from tests.metrics_fed import busy_metrics, labels_by_metric, parsed, samples

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")
ALERTS = (DOCS / "prometheus-alerts.yml").read_text(encoding="utf-8")

#: Labels that Prometheus adds to every sample.
SCRAPED = frozenset({"job", "instance"})


Served = Mapping[str, frozenset[str]]


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return read


@pytest.fixture(scope="module")
def served() -> Served:
    """The labels of each metric in a scrape, by its name."""
    found = labels_by_metric(samples(busy_metrics()) | parsed(conversion_metrics.metrics_text()))
    return {name: labels | SCRAPED for name, labels in found.items()}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in dashboard["panels"] if each["type"] != "row"]


def test_panels_have_distinct_ids_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    every = dashboard["panels"]
    assert len({each["id"] for each in every}) == len(every)
    taken: set[tuple[int, int]] = set()
    for each in every:
        place = each["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, each["title"]
        assert place["x"] + place["w"] <= 24, each["title"]
        taken |= cells


def test_every_query_uses_metrics_that_exist(dashboard: dict[str, Any], served: Served) -> None:
    for panel in panels(dashboard):
        for query in panel["targets"]:
            result = labels_of(promql.parse(expanded(query["expr"])), served)
            legend = set(re.findall(r"{{(\w+)}}", query["legendFormat"]))
            assert legend <= result, (panel["title"], legend - result)


def test_every_query_uses_the_chosen_data_source_and_mirrors(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        for query in panel["targets"]:
            assert query["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]
            for selector in selectors(promql.parse(expanded(query["expr"]))):
                matched = {each.name: each.value for each in selector.matchers.matchers}
                assert (matched["job"], matched["instance"]) == ("$job", "$instance"), panel["title"]
                assert matched.get("topic", "$topic") == "$topic", panel["title"]


def test_variables_list_served_labels(dashboard: dict[str, Any], served: Served) -> None:
    names = set()
    for variable in dashboard["templating"]["list"]:
        names.add(variable["name"])
        if variable["type"] == "query":
            listed = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert listed, variable["name"]
            assert listed[2] in labels_of(promql.parse(listed[1]), served), variable["name"]
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard))) - {"__rate_interval", "__all"}
    assert used == names


def test_every_shoal_metric_is_on_the_dashboard(dashboard: dict[str, Any], served: Served) -> None:
    text = json.dumps(dashboard)
    assert [name for name in served if name.startswith("shoal_") and name not in text] == []


def test_documented_metrics_are_those_served(served: Served) -> None:
    documented = set(re.findall(r"\b((?:shoal|process)_[a-z_]*[a-z])\b", PAGE))
    assert documented == set(served)


def test_alerts_use_metrics_that_exist(served: Served) -> None:
    rules = re.findall(r"expr: (.*)", ALERTS)
    assert rules
    for rule in rules:
        labels_of(promql.parse(rule), served)


def test_page_has_the_meaning_of_each_alert() -> None:
    alerts = re.findall(r"alert: (\w+)", ALERTS)
    section = PAGE.partition("## Alerts")[2].partition("\n## ")[0]
    assert re.findall(r"`(Mirror\w+)`", section) == alerts


def expanded(expression: str) -> str:
    """Insert an interval as Grafana does. Its other variables stand in strings, and may stay."""
    return expression.replace("$__rate_interval", "1m")


def selectors(expression: Any) -> Iterator[promql.VectorSelector]:
    match expression:
        case promql.VectorSelector():
            yield expression
        case promql.MatrixSelector():
            yield expression.vector_selector
        case promql.AggregateExpr() | promql.ParenExpr() | promql.UnaryExpr():
            yield from selectors(expression.expr)
        case promql.Call():
            for each in expression.args:
                yield from selectors(each)
        case promql.BinaryExpr():
            yield from selectors(expression.lhs)
            yield from selectors(expression.rhs)
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            raise AssertionError(f"no rule here for {type(expression)}")


def labels_of(expression: Any, served: Served) -> frozenset[str]:
    """Return the labels of an expression's result; its metrics must be served."""
    match expression:
        case promql.VectorSelector():
            assert expression.name is not None, expression
            assert expression.name in served, expression.name
            asked = {each.name for each in expression.matchers.matchers}
            assert asked <= served[expression.name], (expression.name, asked)
            return served[expression.name]
        case promql.MatrixSelector():
            return labels_of(expression.vector_selector, served)
        case promql.AggregateExpr():
            inner = labels_of(expression.expr, served)
            if expression.modifier is None:
                return inner if str(expression.op) in ("topk", "bottomk") else frozenset()
            assert expression.modifier.type == promql.AggModifierType.By
            assert set(expression.modifier.labels) <= inner, expression.modifier.labels
            return frozenset(expression.modifier.labels)
        case promql.ParenExpr() | promql.UnaryExpr():
            return labels_of(expression.expr, served)
        case promql.Call():
            return frozenset().union(*(labels_of(each, served) for each in expression.args))
        case promql.BinaryExpr():
            left, right = (labels_of(each, served) for each in (expression.lhs, expression.rhs))
            if expression.modifier is not None and expression.modifier.matching is not None:
                assert set(expression.modifier.matching.labels) <= left & right
            return left or right
        case promql.NumberLiteral() | promql.StringLiteral():
            return frozenset()
    raise AssertionError(f"no rule here for {type(expression)}")
