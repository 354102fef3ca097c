"""``shoal mirror --init``: the file that it prints describes the same mirror, and is commented."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import main, make_parser
from shoal.cli.config_file import with_config_file
from shoal_broker import Broker
from tests.snapshots import Texts

GIVEN = [
    *("--topics", r"orders,orders\..*", "--rename", r"(.*)=west.\1", "--slice", "10", "--once"),
    *("--on-source-retention", "continue", "--fetch-buffer-bytes", "32m", "--replication-factor", "1"),
    *("--conf", "spark.executor.memory=2g", "--conf", 'spark.quoted="a\\b"', "--report", "report.html"),
    *("--start", "2026-01-31T12:00:00Z", "--groups", "größe.*"),
    *("--limit", "50m", "--limit-topic", r"logs\..*=5m", "--limit-topic", "audit=1m", "--nice", "50"),
    *("--priority", r"orders,payments\..*", "--control", "/run/a.sock", "--throttle-flag-file", "/run/slow"),
]


class Sides:
    def __init__(self, source: Broker, destination: Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self.clusters = ["--from", source.bootstrap, "--to", destination.bootstrap]
        self.source, self.destination, self._capsys = source, destination, capsys
        source.create_topic("orders", partitions=2)

    def init(self, *arguments: str) -> tuple[int, str, str]:
        code = main(["mirror", "--init", *self.clusters, *arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


@pytest.fixture
def sides(capsys: pytest.CaptureFixture[str]) -> Iterator[Sides]:
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        yield Sides(source, destination, capsys)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = make_parser("mirror")
    return parser.parse_args(with_config_file(parser, ["mirror", *arguments]))


def test_file_describes_the_same_mirror(
    sides: Sides, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = sides.init(*GIVEN)
    assert (code, err) == (0, "")
    file = tmp_path / "other" / "mirror.toml"
    file.parent.mkdir()
    file.write_text(out, encoding="utf-8")
    read = parsed("--config", str(file))
    given = parsed(*sides.clusters, *GIVEN)
    given.config_file, given.report = read.config_file, str(tmp_path / "report.html")
    assert vars(read) == vars(given)


def test_file_without_further_options_sets_only_clusters_and_topics(sides: Sides) -> None:
    code, out, _ = sides.init("--topics", "orders")
    assert code == 0
    assert set(tomllib.loads(out)) == {"from", "to", "topics"}


def test_file_mentions_every_option_of_the_mirror_once(sides: Sides) -> None:
    _, out, _ = sides.init("--topics", "orders")
    known = set(vars(parsed("--topics", "x"))) - {"verb", "run", "config_file", "init", "dry_run", "json"}
    lines = [line.removeprefix("# ") for line in out.splitlines()]
    keys = [line.partition(" = ")[0] for line in lines if " = " in line]
    assert len(keys) == len(set(keys))
    assert len(keys) >= len(known) - 6  # [conf], --verbose, and what the parser adds


def test_commented_values_are_the_present_ones(sides: Sides) -> None:
    _, out, _ = sides.init("--topics", "orders")
    lines = out.splitlines()
    assert '# group = "shoal.source.destination"' in lines
    assert "# slice = 60" in lines
    assert "# once = false" in lines
    assert '# delivery = "exactly-once"' in lines
    assert "# replication-factor = N" in lines


def test_head_has_the_clusters_and_the_topics(sides: Sides, texts: Texts) -> None:
    _, out, _ = sides.init("--topics", "orders", "--rename", r"(.*)=west.\1")
    head = out.partition("# ---- ")[0]
    texts(head.splitlines()[1:])  # the first line has the version and the date


def test_init_changes_nothing(sides: Sides) -> None:
    sides.init("--topics", "orders")
    assert sides.destination.topics.get("orders") is None


def test_mirror_that_would_not_start_is_written_with_the_reason(sides: Sides, texts: Texts) -> None:
    code, out, err = sides.init("--topics", "orders", "--replication-factor", "3")
    assert code == 0
    assert "# - would not start: " in out
    texts(err)


def test_unknown_topic_is_an_error_without_a_file(sides: Sides, texts: Texts) -> None:
    code, out, err = sides.init("--topics", "ordres")
    assert (code, out) == (2, "")
    texts(err)


@pytest.mark.parametrize("option", ["--json", "--dry-run"])
def test_init_with_another_output_is_refused(sides: Sides, option: str, texts: Texts) -> None:
    code, out, err = sides.init("--topics", "orders", option)
    assert code == 2
    texts(err)
    assert "# A mirror" not in out
