"""The table of differences, and which server a test applies to."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from rig.agent import newest_of_each_line
from tests.conformance.differences import DIFFERENCES, difference
from tests.conformance.servers import every_server, server_named, tier_of

AGENTS = [f"agent-{version}" for version in newest_of_each_line()]


def test_each_difference_names_existing_tests() -> None:
    named = {test.partition("[")[0] for row in DIFFERENCES for test in row.tests}
    for file, _, name in (test.partition("::") for test in named):
        source = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {name}\(", source, re.MULTILINE), (file, name)


def test_each_difference_has_a_server_and_is_not_hidden_by_another() -> None:
    for row in DIFFERENCES:
        names = [each for each in every_server() if any(fnmatchcase(each.name, name) for name in row.servers)]
        assert names
        for server in names:
            for test in row.tests:
                name, _, parameters = test.partition("[")
                node = f"tests/conformance/{name}[{server.name}" + (f"-{parameters}" if parameters else "]")
                assert difference(node, server) is row


def test_difference_is_found_by_parameters_and_server() -> None:
    case = "test_produce_cases.py::test_recorded_case_has_kafka_s_response_and_log"
    kafka, embedded = server_named("kafka-4.4.0"), server_named("embedded")
    assert difference(f"tests/conformance/{case}[kafka-4.4.0-a record of negative length, lz4]", kafka)
    assert not difference(f"tests/conformance/{case}[kafka-4.4.0-a record of negative length, none]", kafka)
    assert not difference(f"tests/conformance/{case}[embedded-a record of negative length, lz4]", embedded)


@pytest.mark.parametrize(
    ("mark", "names"),
    [
        (pytest.mark.not_before("4.1"), ["embedded", "gateway", "kafka-4.4.0", *AGENTS]),
        (pytest.mark.administrators, ["embedded", "kafka-4.4.0", "kafka-3.9.2", "kafka-2.8.2", *AGENTS]),
        (pytest.mark.several_batches, ["embedded", *AGENTS]),
        (pytest.mark.one_batch, ["gateway", "kafka-4.4.0", "kafka-3.9.2", "kafka-2.8.2"]),
    ],
)
def test_marked_test_applies_to_these_servers(mark: pytest.MarkDecorator, names: list[str]) -> None:
    assert {each.name for each in every_server() if each.applies({mark.name: mark.mark})} == set(names)


@pytest.mark.parametrize(
    ("name", "tier"),
    [("embedded", None), ("gateway", None), ("kafka-4.4.0", "integration"), ("agent-4.4.0", "long")],
)
def test_server_is_in_its_tier(name: str, tier: str | None) -> None:
    assert tier_of(server_named(name), {}) == tier


@pytest.mark.parametrize(("line", "tier"), [(0, "integration"), (1, "long"), (-1, "integration")])
def test_oldest_and_newest_agent_are_in_the_second_tier_for_several_batches(line: int, tier: str) -> None:
    mark = pytest.mark.several_batches
    assert tier_of(server_named(AGENTS[line]), {mark.name: mark.mark}) == tier


def test_unknown_server_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="rabbit"):
        server_named("rabbit")
