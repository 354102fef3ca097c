"""``shoal verify --follow``: rounds over what comes, with positions of its own."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal.cli import main
from shoal.cli.verify_metrics import metrics_text
from shoal.client.cluster import Cluster
from shoal.errors import ConfigError, ShoalError, Stopped
from shoal.protocol.apis import ApiKey
from shoal.topic_partition import TopicPartition
from shoal.verify import DifferenceKind, Extent, Outcome, PartitionReport
from shoal.verify.comparison import PartitionComparison
from shoal.verify.follow import Follower, FollowStatus, Round
from shoal.verify.run import Interrupting
from shoal_broker.faults import Fault
from tests import batches
from tests.metrics_fed import BUSY_VERIFICATION
from tests.two_brokers import NOW_MS, History, TwoBrokers, batches_of
from tests.verifying import Item, encode, lay_out

DOCS = Path(__file__).parents[2] / "docs"

ALERTS = (DOCS / "prometheus-alerts-verify.yml").read_text(encoding="utf-8")

PARTITION = TopicPartition("topic", 0)
#: A wait for a stalled answer would take so long. A command has to end before.
STALL_S = 600.0


@pytest.fixture
def new_follower(brokers: TwoBrokers) -> Callable[..., Follower]:
    settings = brokers.settings

    def make(**options: Any) -> Follower:
        chosen = {"group": settings.group, "patience_s": 0.5, **options}
        return Follower(settings.source, settings.destination, lambda: {"topic": "topic"}, **chosen)

    return make


@pytest.fixture
def follower(new_follower: Callable[..., Follower]) -> Follower:
    return new_follower()


def run(follower: Follower) -> Round:
    return follower.round(threading.Event())


def copy(brokers: TwoBrokers, *, until: int | None = None) -> None:
    """Copy the source's batches as another program does: without positions of shoal's."""
    found = [bytearray(each.view) for each in batches_of(brokers.source.log("topic"))]
    lay_out(brokers, found[:until])


def test_round_compares_records_since_the_last_one(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3, 2)
    copy(brokers)
    assert (run(follower).report.records, run(follower).report.records) == (5, 0)
    history.plain(4)
    copy(brokers)
    result = run(follower)
    assert (result.report.records, result.status.outcome) == (4, Outcome.EQUAL)
    status = result.status.partitions[PARTITION]
    assert (status.records, status.reached, status.lag) == (9, (9, 9), 0)


def test_lag_of_the_mirror_is_no_difference_and_is_compared_later(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3, 2, 4)
    copy(brokers, until=1)
    result = run(follower)
    assert (result.report.records, result.status.partitions[PARTITION].lag) == (3, 6)
    assert (result.news, result.status.outcome) == ((), Outcome.EQUAL)
    copy(brokers)
    assert run(follower).report.records == 6


def test_mirror_of_shoal_is_followed_from_its_positions(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    for _ in range(3):
        history.plain(3, 2)
        brokers.run()
        assert run(follower).report.records == 5
    assert follower.status.partitions[PARTITION].records == 15


def test_difference_is_reported_once_and_the_comparison_continues(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3)
    copy(brokers)
    run(follower)
    history.plain(2)
    found = [bytearray(each.view) for each in batches_of(brokers.source.log("topic"))]
    found[1] = batches.batch([b"an", b"other"], base_timestamp=NOW_MS)
    lay_out(brokers, found)
    result = run(follower)
    assert len(result.news) == 1
    assert re.search(r"offsets.*3.*4", result.news[0])
    history.plain(4)
    found.append(bytearray(list(batches_of(brokers.source.log("topic")))[-1].view))
    lay_out(brokers, found)
    result = run(follower)
    assert (result.news, result.report.records) == ((), 4)
    status = result.status.partitions[PARTITION]
    assert (status.differing, result.status.outcome) == ({DifferenceKind.ALTERED: 2}, Outcome.DIFFERENT)


def test_state_continues_in_another_process(
    brokers: TwoBrokers, history: History, new_follower: Callable[..., Follower], tmp_path: Path
) -> None:
    file = tmp_path / "topic.state"
    history.plain(3, 2)
    copy(brokers)
    run(new_follower(state=str(file)))
    assert file.stat().st_mode & 0o777 == 0o600
    history.plain(4)
    copy(brokers)
    result = run(new_follower(state=str(file)))
    assert (result.report.records, result.status.partitions[PARTITION].records) == (4, 9)


def test_failed_round_keeps_the_positions(brokers: TwoBrokers, history: History, follower: Follower) -> None:
    history.plain(3)
    copy(brokers)
    run(follower)
    history.plain(2)
    copy(brokers)
    fault = brokers.source.faults.add(ApiKey.METADATA, drop="before", times=None)
    with pytest.raises(ShoalError):
        run(follower)
    assert follower.status.failed_rounds == 1
    brokers.source.faults.remove(fault)
    assert run(follower).report.records == 2


def test_stopped_round_counts_each_record_once(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3)
    copy(brokers)
    stop = threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        follower.round(stop)
    assert follower.status.rounds == 0
    history.plain(2)
    copy(brokers)
    assert run(follower).status.partitions[PARTITION].records == 5


@pytest.mark.parametrize("ends", ["stopped", "failed"])
def test_round_that_does_not_end_keeps_the_positions_of_equal_partitions(
    brokers: TwoBrokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    for topic in ("topic", "other"):
        (history,) = brokers.topic(topic)
        history.plain(3, 2)
        lay_out(brokers, [bytearray(each.view) for each in batches_of(brokers.source.log(topic))], topic)
    file, stop, is_kept = tmp_path / "state", threading.Event(), threading.Event()
    whole, after = PartitionComparison.run, Follower._after

    def after_(self: Follower, *report: Any) -> Any:
        is_kept.set()  # on the thread of the round, which looks at the next report or at the stop only then
        return after(self, *report)

    def run_(self: PartitionComparison, ours: Cluster, theirs: Cluster) -> PartitionReport:
        if self.plan.source == PARTITION:
            return whole(self, ours, theirs)
        assert is_kept.wait(60)
        if ends == "failed":
            raise ShoalError("a cluster does not answer")
        stop.set()
        assert self._stop.wait(60)  # by the round that ends
        return whole(self, ours, theirs)

    def follower() -> Follower:
        topics = {"topic": "topic", "other": "other"}
        return Follower(
            brokers.settings.source, brokers.settings.destination, lambda: topics, state=str(file)
        )

    with monkeypatch.context() as patched:
        patched.setattr(PartitionComparison, "run", run_)
        patched.setattr(Follower, "_after", after_)
        first = follower()
        with pytest.raises(Stopped if ends == "stopped" else ShoalError):
            first.round(stop)
    again = follower() if ends == "stopped" else first
    result = run(again)
    assert {each.source: each.records for each in result.report.partitions} == {
        PARTITION: 0,
        TopicPartition("other", 0): 5,
    }
    assert [each.records for each in result.status.partitions.values()] == [5, 5]


def test_topic_that_was_created_again_is_compared_from_its_beginning(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3, 2)
    copy(brokers)
    run(follower)
    for broker in (brokers.source, brokers.destination):
        broker.topics.delete(broker.topics.topic("topic"))
    (again,) = brokers.topic()
    again.plain(7)
    copy(brokers)
    result = run(follower)
    assert result.report.records == 7
    (news,) = result.news
    assert all(each in news for each in ("topic-0: compared", "created again"))


def test_copy_that_loses_compared_records_is_different(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3, 2, 4)
    copy(brokers)
    run(follower)
    copy(brokers, until=2)
    result = run(follower)
    assert any("lost 4 offsets" in each for each in result.news)
    assert result.status.partitions[PARTITION].differing == {DifferenceKind.MISSING: 4}


@pytest.mark.parametrize("side", ["source", "destination"])
def test_records_that_retention_deleted_before_their_round_are_reported(
    brokers: TwoBrokers, history: History, follower: Follower, side: str
) -> None:
    history.plain(3, 2)
    copy(brokers)
    run(follower)
    history.plain(*[4] * 10)
    copy(brokers)
    (brokers.source if side == "source" else brokers.destination).log("topic").delete_records(21)
    result = run(follower)
    (news,) = result.news
    assert news.startswith("topic-0: not compared: ")
    assert all(
        each in news for each in ("source offsets 5 to 20", "destination offsets 5 to 20", "retention")
    )
    assert (result.report.records, result.status.outcome) == (24, Outcome.NOT_COMPARED)
    after = run(follower)
    assert (after.news, after.status.outcome) == ((), Outcome.EQUAL)


def test_partition_that_cannot_be_compared_is_reported_once_and_tried_more_rarely(
    brokers: TwoBrokers, history: History, follower: Follower
) -> None:
    history.plain(3)
    lay_out(brokers, [encode([Item(1, b"other", b"topic")])])
    first = run(follower)
    assert (len(first.news), first.status.outcome) == (1, Outcome.NOT_COMPARED)
    read = [run(follower).report.bytes_read for _ in range(7)]
    assert [each > 0 for each in read] == [False, True, False, False, True, False, False]
    copy(brokers)
    while not run(follower).report.records:
        pass
    assert follower.status.outcome is Outcome.EQUAL


def test_topic_that_is_selected_no_longer_has_no_lag(brokers: TwoBrokers, history: History) -> None:
    topics = {"topic": "topic"}
    settings = brokers.settings
    follower = Follower(settings.source, settings.destination, lambda: topics, patience_s=0.5)
    history.plain(3, 2, 4)
    found = [bytearray(each.view) for each in batches_of(brokers.source.log("topic"))]
    found[0] = batches.batch([b"an", b"other", b"value"], base_timestamp=NOW_MS)
    lay_out(brokers, found[:2])
    before = run(follower).status.partitions[PARTITION]
    assert (before.lag, before.differing) == (4, {DifferenceKind.ALTERED: 3})
    topics.clear()
    after = run(follower).status
    assert after.partitions[PARTITION] == replace(before, lag=None)
    assert after.outcome is Outcome.DIFFERENT


def test_following_may_begin_with_the_last_records(
    brokers: TwoBrokers, history: History, new_follower: Callable[..., Follower]
) -> None:
    history.plain(*[100] * 60)
    copy(brokers)
    follower = new_follower(extent=Extent(last_offsets=2_000))
    assert run(follower).report.records == 2_000
    history.plain(5)
    copy(brokers)
    assert run(follower).report.records == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not the state of a verification"),
        ("[]", "is not the state of a verification"),
        ('{"type": "shoal cutover", "version": 1}', "its type is 'shoal cutover'"),
        ('{"type": "shoal verify state", "version": 2}', "it has version 2"),
        ('{"type": "shoal verify state", "version": 1}', "'clusters' is missing"),
    ],
)
def test_file_that_is_no_state_is_refused(
    new_follower: Callable[..., Follower], tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "state").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(words)):
        new_follower(state=str(tmp_path / "state"))


def test_state_of_other_clusters_is_refused(
    brokers: TwoBrokers, history: History, new_follower: Callable[..., Follower], tmp_path: Path
) -> None:
    file = tmp_path / "state"
    history.plain(3)
    copy(brokers)
    run(new_follower(state=str(file)))
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "clusters": ["source", "third"]}))
    with pytest.raises(ConfigError, match=r"clusters.*source"):
        run(new_follower(state=str(file)))


# The verb


@pytest.fixture
def command(brokers: TwoBrokers) -> list[str]:
    source, destination = brokers.source.bootstrap, brokers.destination.bootstrap
    return ["verify", "--from", source, "--to", destination, "--topics", "topic"]


@pytest.fixture
def two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal ends the second round."""
    whole = Follower.round

    def round_(self: Follower, stop: threading.Event, interrupting: Interrupting) -> Round:
        result = whole(self, stop, interrupting)
        if self.status.rounds == 2:
            signal.raise_signal(signal.SIGTERM)
        return result

    monkeypatch.setattr(Follower, "round", round_)


@pytest.mark.usefixtures("two_rounds")
def test_verb_follows_until_a_signal(
    brokers: TwoBrokers, history: History, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    history.plain(3)
    copy(brokers)
    handlers = signal.getsignal(signal.SIGTERM)
    options = ["--follow", "--interval", "0.1", "--metrics", "127.0.0.1:0"]
    assert main([*command, *options]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r"equal: 3 records .*, lag 0 records, [0-9.]+ s\n", out)
    assert "metrics at http://127.0.0.1:" in err
    assert signal.getsignal(signal.SIGTERM) is handlers


@pytest.mark.usefixtures("two_rounds")
def test_verb_prints_differences_once_and_ends_with_exit_code_1(
    brokers: TwoBrokers, history: History, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    history.plain(3, 2, 4)
    found = [bytearray(each.view) for each in batches_of(brokers.source.log("topic"))]
    lay_out(brokers, [found[0], found[2]])
    assert main([*command, "--follow", "--interval", "0.1", "--json"]) == 1
    out, err = capsys.readouterr()
    rounds = [json.loads(line) for line in out.splitlines()]
    assert [(each["round"], each["records"], len(each["news"])) for each in rounds] == [(1, 7, 1), (2, 0, 0)]
    assert rounds[1]["partitions"][0]["differing"] == {"missing": 2}
    assert err.count("missing: source offsets 3 ") == 1


@pytest.mark.usefixtures("two_rounds")
def test_verb_warns_once_of_an_expression_without_topics(
    brokers: TwoBrokers, history: History, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    history.plain(3)
    copy(brokers)
    assert main([*command[:-1], "topic,other.*", "--follow", "--interval", "0.1"]) == 0
    assert capsys.readouterr().err.count("'other.*'") == 1


@pytest.mark.usefixtures("two_rounds")
def test_verb_continues_while_no_topic_matches(
    brokers: TwoBrokers,
    history: History,
    command: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history.plain(3)
    copy(brokers)
    whole = Follower.round

    def round_(self: Follower, stop: threading.Event, interrupting: Interrupting) -> Round:
        if self.status.rounds == 1:
            brokers.source.topics.delete(brokers.source.topics.topic("topic"))
        return whole(self, stop, interrupting)

    monkeypatch.setattr(Follower, "round", round_)
    assert main([*command[:-1], "top.*", "--follow", "--interval", "0.1"]) == 0
    assert "equal: 3 records " in capsys.readouterr().out


@pytest.mark.parametrize(
    "api",
    [ApiKey.METADATA, ApiKey.OFFSET_FETCH, ApiKey.LIST_OFFSETS, ApiKey.FETCH],
    ids=lambda api: api.name.lower(),
)
def test_signal_while_brokers_do_not_answer_ends_the_verb(
    brokers: TwoBrokers, history: History, command: list[str], api: ApiKey
) -> None:
    history.plain(3)
    copy(brokers)
    whole = Follower.round
    faults: list[Fault] = []
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def end() -> None:
        brokers.source.faults.wait_for(faults[0])
        signal.pthread_kill(main_thread, signal.SIGTERM)

    sender = threading.Thread(target=end)

    def round_(self: Follower, stop: threading.Event, interrupting: Interrupting) -> Round:
        faults.append(brokers.source.faults.add(api, delay_s=STALL_S, times=None))
        sender.start()
        return whole(self, stop, interrupting)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Follower, "round", round_)
        assert main([*command, "--follow"]) == 3
    brokers.source.faults.clear()
    sender.join()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--state", "a"], "--state needs --follow"),
        (["--interval", "1"], "--interval needs --follow"),
        (["--metrics", "127.0.0.1:0"], "--metrics needs --follow"),
        (["--follow", "--interval", "0"], "--interval '0': not between 0.1 and"),
        (["--follow", "--interval", "nan"], "--interval 'nan': not between"),
        (["--follow", "--report", "a.html"], "--follow and --report contradict each other"),
        (["--follow", "--sample", "5%"], "--follow and --sample contradict each other"),
        (["--follow", "--state", "/nowhere/state"], "--state /nowhere/state"),
    ],
)
def test_option_that_does_not_fit_is_one_sentence_and_exit_code_2(
    command: list[str], capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert main([*command, *options]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert words in err


# Metrics and alerts


def served() -> dict[str, set[str]]:
    """Return the labels of each metric."""
    text = metrics_text(BUSY_VERIFICATION).decode()
    return {
        sample.name: {label for each in family.samples for label in each.labels}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_documented_metrics_are_those_served() -> None:
    page = (DOCS / "verify-follow.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(shoal_verify_\w+)` \| (\w+) \| ([\w, ]*) ?\|", page, re.MULTILINE)
    documented = {
        name: {each.strip() for each in labels.split(",") if each.strip()} for name, _, labels in rows
    }
    assert documented == {name: labels for name, labels in served().items() if name.startswith("shoal_")}


def test_metrics_have_the_values_of_the_status() -> None:
    text = metrics_text(BUSY_VERIFICATION).decode()
    assert 'shoal_verify_records_total{partition="0",topic="topic"} 5.0' in text
    assert 'shoal_verify_differing_records{kind="missing",partition="0",topic="topic"} 3.0' in text
    assert 'shoal_verify_lag_records{partition="0",topic="topic"} 7.0' in text
    assert 'shoal_verify_not_compared{partition="0",topic="topic"} 1.0' in text
    assert "shoal_verify_last_round_timestamp_seconds" not in re.sub(
        "#.*", "", metrics_text(FollowStatus()).decode()
    )


def test_page_has_the_meaning_of_each_alert() -> None:
    page = (DOCS / "verify-follow.md").read_text(encoding="utf-8")
    section = page.partition("## Alerts")[2].partition("\n## ")[0]
    assert re.findall(r"`(Verify\w+)`", section) == re.findall(r"alert: (\w+)", ALERTS)


def test_alerts_use_metrics_that_exist() -> None:
    rules = re.findall(r"expr: (.*)", ALERTS)
    assert len(rules) == 5
    for rule in rules:
        promql.parse(rule)
        names = set(re.findall(r"shoal_verify_\w+", rule))
        assert names
        assert names <= set(served())
