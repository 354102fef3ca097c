"""Commands without the extra `spark`: some need no Spark, the others say what to install."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rig.shoal import run_shoal
from tests.without_spark import environment_without
from tests.world.clusters import TwoBrokers
from tests.world.history import History


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "modules").mkdir()
    return environment_without(tmp_path / "modules", "pyspark", "py4j", "pyarrow")


def clusters(two: TwoBrokers) -> list[str]:
    return [*two.between, "--topics", "topic"]


@pytest.mark.parametrize("verb", [["mirror", "--once"], ["verify", "--master", "local[1]"]])
def test_command_on_spark_names_the_extra(
    brokers: TwoBrokers, history: History, without_spark: dict[str, str], tmp_path: Path, verb: list[str]
) -> None:
    history.plain(1)
    done = run_shoal(*verb, *clusters(brokers), state=tmp_path, environment=without_spark)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pyspark" in done.stderr
    assert "pip install 'shoal[spark]'" in done.stderr


def test_dry_run_needs_no_spark_and_names_the_extra(
    brokers: TwoBrokers, history: History, without_spark: dict[str, str], tmp_path: Path
) -> None:
    history.plain(1)
    options = [*clusters(brokers), "--dry-run", "--json"]
    done = run_shoal("mirror", *options, state=tmp_path, environment=without_spark)
    assert done.returncode == 0, done.stderr
    assert "pip install 'shoal[spark]'" in done.stderr
    assert [each["plan"]["source"] for each in json.loads(done.stdout)["topics"]] == ["topic"]


def test_verify_needs_no_spark(
    brokers: TwoBrokers, history: History, without_spark: dict[str, str], tmp_path: Path
) -> None:
    history.plain(1)
    done = run_shoal("verify", *clusters(brokers), "--json", state=tmp_path, environment=without_spark)
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (3, "not compared"), done.stderr


def test_inspect_needs_no_spark(
    brokers: TwoBrokers, history: History, without_spark: dict[str, str], tmp_path: Path
) -> None:
    history.plain(2)
    options = ["--from", brokers.source.bootstrap, "--topics", "topic", "--json"]
    done = run_shoal("inspect", *options, state=tmp_path, environment=without_spark)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["topics"][0]["records"] == 2
