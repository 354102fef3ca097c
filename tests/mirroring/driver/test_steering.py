"""A driver steers its tasks by options, files, priorities and commands, and keeps what was set."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.client.config import ClientConfig
from shoal.client.coordinator import MemberId
from shoal.errors import ConfigError, OptionError
from shoal.mirroring.control import ControlConnection, ControlServer
from shoal.mirroring.driver.priorities import Priorities
from shoal.mirroring.driver.schedule import PartitionSchedule
from shoal.mirroring.driver.steering import Steering
from shoal.mirroring.driver.steering_commands import COMMANDS, Reactions, SteeringCommands
from shoal.mirroring.driver.steering_file import SteeringFile
from shoal.mirroring.driver.topic_expressions import topics_of
from shoal.mirroring.model.options import MirrorOptions
from shoal.mirroring.model.steering_options import SetSteering, SteeringOptions
from shoal.mirroring.model.topics import TopicSelection
from shoal.mirroring.monitoring.metrics import Metrics
from shoal.mirroring.monitoring.partition_metrics import PartitionMetrics
from shoal.mirroring.prepare.create import PreparedTopic
from shoal.net.address import Address
from shoal.topic_partition import TopicPartition
from tests.two_brokers import wait_until

NAMES = ("orders", "orders.old", "logs")


def cluster(name: str) -> ClientConfig:
    return ClientConfig(name, (Address("127.0.0.1", 1),))


class Mirror:
    """A driver without clusters, whose tasks the tests connect."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.said: list[str] = []
        self.refreshed = 0
        self.is_stopped = False
        self.metrics = Metrics()
        self.schedule = PartitionSchedule({}, self.metrics)
        for name in NAMES:
            self.add(name)
        self.server = ControlServer("127.0.0.1", "secret", self.schedule)
        self.server.renew(MemberId(), 600.0)
        self.steering = Steering(
            MirrorOptions(
                cluster("source"),
                cluster("destination"),
                TopicSelection(".*"),
                steering=SteeringOptions.parse(options),
            ),
            directory,
            self.server,
            self.schedule,
            self.metrics,
            self.said.append,
            self.said.append,
        )
        reactions = Reactions(self._refresh, self._stop, self.said.append)
        self.commands = SteeringCommands(self.steering, self.metrics, reactions)

    def add(self, name: str) -> None:
        self.schedule.add(PreparedTopic(name, name, 1, created=False))

    def _refresh(self) -> None:
        self.refreshed += 1

    def _stop(self) -> None:
        self.is_stopped = True

    def __enter__(self) -> Mirror:
        self.steering.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.steering.__exit__(*exc_info)
        self.server.close()

    def do(self, line: str) -> Mapping[str, Any]:
        answer = self.commands.carry_out(line)
        assert answer.ok
        return answer.to_json_object()

    def task(self) -> ControlConnection:
        """Connect a task with one partition of each topic."""
        control = ControlConnection(self.server.address, "secret")
        control.take([TopicPartition(name, 0) for name in NAMES])
        return control


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Mirror]]:
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(Mirror(tmp_path, **options))


# Commands reach tasks


def test_pause_and_resume_reach_a_task(started: Callable[..., Mirror]) -> None:
    mirror = started()
    with mirror.task() as task:
        assert "2 topics" in mirror.do("pause orders.*")["text"]
        wait_until(lambda: task.steering.paused == {"orders", "orders.old"})
        assert mirror.do("resume")["text"] == "resumed orders.*"
        wait_until(lambda: not task.steering.paused)


def test_pause_holds_for_topics_that_are_found_later(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.do("pause orders.*")
    mirror.add("orders.new")
    wait_until(lambda: "orders.new" in mirror.steering.status.paused)


def test_name_pauses_only_the_topic_of_this_name(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.do("pause orders.old")
    assert mirror.steering.status.paused == {"orders.old"}
    mirror.do("pause no-such-topic")
    assert mirror.steering.status.paused == {"orders.old"}


def test_limit_of_the_mirror_and_of_topics_reach_a_task(started: Callable[..., Mirror]) -> None:
    mirror = started()
    with mirror.task() as task:
        mirror.do("limit 50m")
        wait_until(lambda: task.steering.total is not None)
        mirror.do("limit 1m logs")
        wait_until(lambda: set(task.steering.rates) == {"logs"})
        assert mirror.steering.status.limit == 50 * 1024**2
        mirror.do("unlimit logs")
        wait_until(lambda: not task.steering.rates and task.steering.total is not None)
        mirror.do("unlimit")
        wait_until(lambda: not task.steering.is_on)


def test_newest_limit_counts_for_a_topic_that_two_select(started: Callable[..., Mirror]) -> None:
    mirror = started(limit_topic={".*": "9m"})
    with mirror.task() as task:
        wait_until(lambda: len(task.steering.rates) == 3)
        mirror.do("limit 1m logs")
        wait_until(lambda: len(set(task.steering.rates.values())) == 2)
        assert (
            task.steering.rates["orders"] == task.steering.rates["orders.old"] != task.steering.rates["logs"]
        )


class LateSocket:
    """A task's socket whose ``sendall`` returns only after the driver's answer has arrived."""

    def __init__(self, control: ControlConnection) -> None:
        self._control, self._socket = control, control._socket

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def sendall(self, data: bytes) -> None:
        self._socket.sendall(data)
        if b"takes" in data:
            wait_until(lambda: self._control.steering.is_on)
            time.sleep(0.1)  # the other thread fails to confirm it meanwhile


def test_steering_that_arrives_during_a_report_is_confirmed(started: Callable[..., Mirror]) -> None:
    mirror = started(limit="9m")
    with ControlConnection(mirror.server.address, "secret") as task:
        task._socket = LateSocket(task)  # type: ignore[assignment]
        task.take([TopicPartition(name, 0) for name in NAMES])
        wait_until(lambda: mirror.server.is_steered)


def test_commit_reaches_a_task(started: Callable[..., Mirror]) -> None:
    mirror = started()
    with mirror.task() as task:
        mirror.do("commit")
        wait_until(lambda: task.steering.commits == 1)


def test_grants_reach_a_worker(started: Callable[..., Mirror]) -> None:
    mirror = started(limit="1m")
    with mirror.task() as task:
        allowance = task.open_allowance()
        rate = task.steering.total
        assert rate is not None
        allowance.ask({rate: 1})
        wait_until(lambda: allowance.left(rate) > 0)


def test_refresh_and_stop_call_the_mirror(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.do("refresh")
    mirror.do("stop")
    assert (mirror.refreshed, mirror.is_stopped) == (1, True)


def test_status_and_topics_show_the_steering(started: Callable[..., Mirror]) -> None:
    mirror = started(limit="50m")
    mirror.do("pause logs")
    status = mirror.do("status")
    assert status["steering"]["paused"] == ["logs"]
    assert "limit: 50m/s" in status["text"]
    rows = {row["topic"]: row for row in mirror.do("topics")["topics"]}
    assert rows["logs"]["steering"] == "paused"
    assert rows["orders"]["steering"] is None


def test_help_lists_each_command(started: Callable[..., Mirror]) -> None:
    text = started().do("?")["text"]
    assert [line.split()[0] for line in text.splitlines()] == list(COMMANDS)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("puase x", "there is no command 'puase'. Did you mean pause"),
        ("pause", "pause: 0 arguments are given. Use 'pause TOPICS'"),
        ("pause a b", "pause: 2 arguments"),
        ("pause (", "pause '(' is not a regular expression"),
        ("pause *", "Did you mean '.*'"),
        ("pause " + "a" * 2000, "at most 1000 are allowed"),
        ("limit fast", "invalid size 'fast'"),
        ("limit 0", "limit '0'"),
        ("limit 5m (", "is not a regular expression"),
        ("resume logs", "'logs' is not paused"),
        ("unlimit logs", "'logs' has no limit"),
        ("priority (", "is not a regular expression"),
    ],
)
def test_wrong_command_is_refused_with_its_reason(
    started: Callable[..., Mirror], line: str, reason: str
) -> None:
    mirror = started()
    with pytest.raises(OptionError) as error:
        mirror.commands.carry_out(line)
    assert reason in str(error.value)
    assert mirror.steering.status.sentences == []


def test_expression_without_an_end_is_refused_and_changes_nothing(started: Callable[..., Mirror]) -> None:
    mirror = started()
    mirror.add("a" * 60)
    mirror.do("pause orders")
    with pytest.raises(OptionError, match="cannot be matched"):
        mirror.commands.carry_out("pause (a+)+b")
    assert mirror.steering.status.paused == {"orders"}
    mirror.do("resume orders")


# Kept over a restart


def test_settings_survive_a_restart_and_win_over_the_options(tmp_path: Path) -> None:
    with Mirror(tmp_path, limit="9m") as mirror:
        mirror.do("pause logs")
        mirror.do("limit 5m")
        mirror.do("limit 1m orders")
        mirror.do("priority orders,logs")
    with Mirror(tmp_path, limit="9m") as again:
        status = again.steering.status
        assert (status.paused, status.limit) == (frozenset({"logs"}), 5 * 1024**2)
        assert status.topic_limits == {"orders": 1024**2}
        assert status.priority == ("orders", "logs")
        assert any("control socket" in each for each in again.said)
        with again.task() as task:
            assert task.steering.paused == {"logs"}
        again.do("reset")
        assert again.steering.status.limit == 9 * 1024**2
    assert SteeringFile(tmp_path).read() == SetSteering()
    assert not SteeringFile(tmp_path).path.exists()


def test_unlimit_is_kept_although_the_options_have_a_limit(tmp_path: Path) -> None:
    with Mirror(tmp_path, limit="9m", limit_topic={"logs": "1m"}) as mirror:
        mirror.do("unlimit")
    with Mirror(tmp_path, limit="9m", limit_topic={"logs": "1m"}) as again:
        assert again.steering.status.limit is None
        assert not again.steering.status.topic_limits


def test_file_is_closed_to_others(tmp_path: Path) -> None:
    file = SteeringFile(tmp_path)
    file.write(SetSteering(paused=("x",)))
    assert file.path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"[]",
        b"{",
        b'{"paused": 5}',
        b'{"paused": ["("]}',
        b'{"limit": "x", "topic_limits": []}',
    ],
)
def test_damaged_file_ends_the_start(tmp_path: Path, content: bytes) -> None:
    file = SteeringFile(tmp_path)
    file.path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"steering\.json.*Remove it"):
        file.read()


def test_command_that_cannot_be_kept_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: SteeringFile, setting: SetSteering) -> None:
        raise OSError(28, "No space left on device")

    with Mirror(tmp_path) as mirror:
        monkeypatch.setattr(SteeringFile, "write", fail)
        with pytest.raises(OptionError, match=r"space.*device"):
            mirror.commands.carry_out("pause logs")
        assert not mirror.steering.status.paused


# Files, latencies, priorities


def test_flag_file_pauses_everything_as_long_as_it_exists(
    started: Callable[..., Mirror], tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    mirror = started(throttle_flag_file=str(flag))
    with mirror.task() as task:
        flag.touch()
        wait_until(lambda: task.steering.is_paused)
        wait_until(lambda: mirror.steering.status.throttled_by == (f"the file {flag} exists",))
        flag.unlink()
        wait_until(lambda: not task.steering.is_paused)


class Probe:
    """A probe of latencies that the test sets."""

    name = "source"

    def __init__(self) -> None:
        self._seconds: float | None = None
        self.readings = 0

    @property
    def seconds(self) -> float | None:
        self.readings += 1
        return self._seconds

    def answer_in(self, seconds: float) -> None:
        self._seconds, self.readings = seconds, 0

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *exc_info: object) -> None:
        pass


def test_nice_mirror_backs_off_until_latencies_are_well_below_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe()
    monkeypatch.setattr(Steering, "make_probes", lambda self, options: [probe])
    with Mirror(tmp_path, nice=20) as mirror, mirror.task() as task:
        probe.answer_in(0.025)
        wait_until(lambda: task.steering.is_paused)
        (bound,) = mirror.steering.status.throttled_by
        assert all(each in bound for each in ("source", "25 ms"))
        assert "latency" in mirror.do("status")["text"]
        assert {row["steering"] for row in mirror.do("topics")["topics"]} == {"throttled"}
        probe.answer_in(0.019)  # below the bound, but part of that is the mirror's own
        wait_until(lambda: probe.readings > 10)  # some for each look
        assert task.steering.is_paused
        probe.answer_in(0.001)
        wait_until(lambda: not task.steering.is_paused)


BEHIND = PartitionMetrics(source_offset=0, end_offset=10, behind_since=0.0)
NOW = 1_000.0


def test_topics_wait_until_more_important_ones_have_caught_up() -> None:
    priorities = Priorities()
    ranks = [{"first"}, {"second"}]
    lag = replace(BEHIND, newest_ms=int((NOW - 60) * 1000))
    partitions = {TopicPartition(name, 0): lag for name in ("first", "second", "third")}
    assert priorities.later(ranks, partitions, (), NOW) == {"second", "third"}
    partitions[TopicPartition("first", 0)] = replace(lag, newest_ms=int((NOW - 5) * 1000))
    assert priorities.later(ranks, partitions, (), NOW) == {"second", "third"}  # not quite
    partitions[TopicPartition("first", 0)] = replace(lag, newest_ms=int((NOW - 1) * 1000))
    assert priorities.later(ranks, partitions, (), NOW) == {"third"}
    partitions[TopicPartition("first", 0)] = replace(lag, newest_ms=int((NOW - 5) * 1000))
    assert priorities.later(ranks, partitions, (), NOW) == {"third"}  # a short lag is no catch-up
    partitions[TopicPartition("second", 0)] = replace(lag, source_offset=10)
    assert priorities.later(ranks, partitions, (), NOW) == set()


def test_partition_that_cannot_go_on_delays_no_other() -> None:
    partitions = {TopicPartition("first", 0): BEHIND, TopicPartition("other", 0): BEHIND}
    assert Priorities().later([{"first"}], partitions, (), NOW) == {"other"}
    assert Priorities().later([{"first"}], partitions, ("first",), NOW) == set()
    partitions[TopicPartition("first", 0)] = replace(BEHIND, waiting_for="a broker")
    assert Priorities().later([{"first"}], partitions, (), NOW) == set()


def test_less_important_topic_waits_in_a_task(started: Callable[..., Mirror]) -> None:
    mirror = started(priority="orders.*")
    with mirror.task() as task:
        mirror.metrics.expect({TopicPartition("orders", 0): 0}, {TopicPartition("orders", 0): 9})
        wait_until(lambda: task.steering.paused == {"logs"})
        wait_until(lambda: mirror.steering.status.later == {"logs"})
        mirror.metrics.expect({}, {TopicPartition("orders", 0): 0})
        wait_until(lambda: not task.steering.paused)


# Expressions


def test_expressions_select_whole_names() -> None:
    found = topics_of("pause", ["orders", "o.*", "none.*"], NAMES)
    assert found == {"orders": {"orders"}, "o.*": {"orders", "orders.old"}, "none.*": frozenset()}


def test_expression_is_matched_without_holding_the_interpreter() -> None:
    with pytest.raises(OptionError, match=r"simpler.*expression"):
        topics_of("pause", ["(a+)+b"], ["a" * 60])


# Options


def test_options_are_read_as_users_write_them() -> None:
    read = SteeringOptions.parse(
        {
            "limit": "50m",
            "limit_topic": ["a=b.*=1k", "logs=2m"],
            "priority": "orders,pay{1,2}",
            "nice": "20ms",
        }
    )
    assert read.limit == 50 * 1024**2
    assert read.limit_topic == (("a=b.*", 1024), ("logs", 2 * 1024**2))
    assert read.priority == ("orders", "pay{1,2}")
    assert read.nice == 0.02


@pytest.mark.parametrize(
    "given",
    [
        {"limit": "0"},
        {"limit": "-5"},
        {"limit": "2000000g"},
        {"limit_topic": ["logs"]},
        {"limit_topic": ["(=5m"]},
        {"limit_topic": ["=5m"]},
        {"priority": "("},
        {"nice": 0},
        {"nice": "fast"},
        {"control": ""},
        {"throttle_flag_file": ""},
    ],
)
def test_option_that_cannot_be_used_is_refused(given: Mapping[str, Any]) -> None:
    with pytest.raises(OptionError):
        SteeringOptions.parse(given)


def test_set_steering_survives_json() -> None:
    setting = SetSteering(("a", "b.*"), (5, (("a", 7),)), ("x",))
    assert SetSteering.from_json_object(json.loads(json.dumps(setting.to_json_object()))) == setting
    assert os.linesep not in json.dumps(setting.to_json_object())
