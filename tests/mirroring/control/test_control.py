"""The driver's lines reach its tasks, their reports reach it, and neither outlives the other."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import math
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from shoal.client.cluster import Cluster
from shoal.client.coordinator import MemberId
from shoal.errors import BrokerError, Stopped
from shoal.mirroring.control import ControlConnection, ControlServer, Uncontrolled, WorkerControl
from shoal.mirroring.control.protocol import lease_clock_s
from shoal.mirroring.model.handover import Handover, InheritedPosition
from shoal.mirroring.model.position import MirrorPosition, ProducerIdentity
from shoal.mirroring.model.ranges import OPEN_END
from shoal.mirroring.model.reports import TaskReport
from shoal.protocol.apis import ApiKey
from shoal.timing import DEFAULT_TIMING, Timing
from shoal.topic_partition import TopicPartition
from tests.driver_events import Events
from tests.group_member import GroupMember
from tests.two_brokers import NOW_MS, History, TwoBrokers, is_let_go, leads_elsewhere, wait_until

PARTITION = TopicPartition("topic", 0)
POSITION = MirrorPosition(
    7, 7, ProducerIdentity(1, 0), (0, 0), None, None, None, -1, "rules"
).with_milestone()


class Driver:
    """A control server, and its tasks' reports."""

    def __init__(self, timing: Timing = DEFAULT_TIMING) -> None:
        self.reports: list[dict[str, Any]] = []
        self.server = ControlServer("127.0.0.1", "secret", Events(self._keep), timing=timing)
        self.server.renew(MemberId(), 60.0)

    def _keep(self, report: TaskReport) -> None:
        self.reports.append(report.to_json_object())

    def connect(self) -> ControlConnection:
        return ControlConnection(self.server.address, "secret")


@pytest.fixture
def driver() -> Iterator[Driver]:
    started = Driver()
    yield started
    started.server.close()


@pytest.fixture
def impatient() -> Iterator[Driver]:
    """A driver that waits a second at most for a connection that neither sends nor reads."""
    started = Driver(Timing(first_line_s=0.5, tell_s=1))
    yield started
    started.server.close()


def lapses(control: ControlConnection) -> bool:
    try:
        control.check_lease()
    except (Stopped, BrokerError):
        return True
    return False


def test_connected_task_receives_the_state(driver: Driver) -> None:
    driver.server.renew(MemberId("member", 7, "instance"), 60.0)
    with driver.connect() as control:
        control.check_lease()
        assert not control.stop_requested
        assert control.remaining_s == math.inf
        assert control.membership() == MemberId("member", 7, "instance")


def test_connected_task_receives_every_change(driver: Driver) -> None:
    with driver.connect() as control:
        driver.server.renew(MemberId("other", 8), 60.0)
        wait_until(lambda: control.membership() == MemberId("other", 8))
        driver.server.request_stop()
        wait_until(lambda: control.stop_requested)
        assert driver.server.stop_requested
    with driver.connect() as later:
        assert later.stop_requested


def test_reports_arrive_in_order(driver: Driver) -> None:
    with driver.connect() as control:
        for number in range(100):
            control.report(TaskReport(bytes_in=number))
        wait_until(lambda: len(driver.reports) == 100)
    assert [each["bytes_in"] for each in driver.reports] == list(range(100))


def test_lease_lapses_after_its_time(driver: Driver) -> None:
    driver.server.renew(MemberId(), 0.05)
    with driver.connect() as control:
        wait_until(lambda: lapses(control))
        assert not control.stop_requested
        driver.server.renew(MemberId(), 60.0)
        wait_until(lambda: not lapses(control))
        assert control.interruptions == 1


def test_gate_moves_with_each_renewal(driver: Driver) -> None:
    with driver.connect() as control, WorkerControl(control).gate() as gate:
        assert gate is not None
        before = gate[0]
        assert 0 < before < (lease_clock_s() + 60) * 1e9
        driver.server.renew(MemberId(), 90.0)
        wait_until(lambda: gate[0] > before + 20e9)


def test_gate_closes_for_good_at_an_interruption(driver: Driver) -> None:
    with driver.connect() as control:
        worker = WorkerControl(control)
        with worker.gate() as gate:
            assert gate is not None
            driver.server.renew(MemberId("other", 8), 60.0)
            wait_until(lambda: gate[0] == 0)
            driver.server.renew(MemberId("other", 8), 60.0)
        with pytest.raises(BrokerError), worker.gate():
            pass
        worker.begin()
        with worker.gate() as later:
            assert later is not None
            assert (gate[0], later[0] > 0) == (0, True)


def test_gate_of_an_orphan_closes(driver: Driver) -> None:
    with driver.connect() as control, WorkerControl(control).gate() as gate:
        assert gate is not None
        driver.server.close()
        wait_until(lambda: gate[0] == 0)


def test_gate_of_a_fenced_worker_closes_alone(driver: Driver) -> None:
    with driver.connect() as control:
        fenced, other = WorkerControl(control), WorkerControl(control)
        with fenced.gate() as gate, other.gate() as open_gate:
            assert gate is not None
            assert open_gate is not None
            fenced.fence()
            assert (gate[0], open_gate[0] > 0) == (0, True)
        with pytest.raises(Stopped), fenced.gate():
            pass


def test_lease_line_delayed_in_the_socket_does_not_extend_the_lease() -> None:
    """As in a task that was stopped (SIGSTOP) for longer than its lease."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        read_on = threading.Event()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                hello = json.loads(client.makefile("rb").readline())
                given = STATE % (json.dumps(hello["clock_s"]).encode(), b"0.05", b'["m", 1, null]', b"null")
                client.sendall(given)
                assert read_on.wait(20)
                client.sendall(given * 3)
                client.recv(1000)  # until the task ends

        thread = threading.Thread(target=serve)
        thread.start()
        with ControlConnection(listener.getsockname(), "secret") as control:
            wait_until(lambda: lapses(control))
            read_on.set()
            wait_until(lambda: control.interruptions >= 3)
            assert lapses(control)
        thread.join()


def test_lease_counts_from_the_newest_clock_line_of_the_driver(driver: Driver) -> None:
    driver.server.renew(MemberId(), 0.5)
    with driver.connect() as control:
        began = time.monotonic()
        while time.monotonic() < began + 1.0:
            driver.server.renew(MemberId(), 0.5)  # each line is answered with the task's clock
            assert not lapses(control)
            control.wait(0.05)
        assert control.interruptions == 0


def test_task_without_driver_has_no_lease_and_no_stop_request(driver: Driver) -> None:
    with driver.connect() as control:
        control.check_lease()
        driver.server.close()
        wait_until(lambda: lapses(control))
        assert not control.stop_requested
        control.report(TaskReport())  # no task receives it, without an error
        control.wait(3600.0)  # it returns at once


def test_wait_ends_at_a_stop_request(driver: Driver) -> None:
    with driver.connect() as control:
        threading.Timer(0.05, driver.server.request_stop).start()
        control.wait(20.0)
        assert control.stop_requested


@pytest.mark.parametrize("token", ["wrong", "", "sécret", "secret "])
def test_wrong_token_is_refused(driver: Driver, token: str) -> None:
    with pytest.raises(Stopped, match=r"another.*program"):
        ControlConnection(driver.server.address, token)


def test_task_without_listener_at_the_driver_s_address_is_an_orphan() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(Stopped, match=r"127\.0\.0\.1"):
        ControlConnection(address, "secret")


STATE = (
    b'{"shoal": "%s", "stop": false, "clock_s": %%s, '
    b'"lease_s": %%s, "membership": %%s, "ends_in_s": %%s, "lead_s": 0.0}\n'
    % importlib.metadata.version("shoal").encode()
)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"{}\n",
        b"7\n",
        b'{"stop": false}\n',
        b"[" * 50_000 + b"\n",
        STATE % (b"0.0", b"NaN", b'["member", 7, null]', b"null"),
        STATE % (b"0.0", b"1e300", b'["member", 7, null]', b"null"),
        STATE % (b"0.0", b"-1.0", b'["member", 7, null]', b"null"),
        STATE % (b"0.0", b"1.0", b"[7, 7, 7]", b"null"),
        STATE % (b"0.0", b"1.0", b'["member"]', b"null"),
        STATE % (b"0.0", b"1.0", b'["member", 7, null]', b'"3"'),
        STATE % (b"0.0", b"1.0", b'["member", 7, null]', b"NaN"),
        STATE % (b"NaN", b"1.0", b'["member", 7, null]', b"null"),
        STATE % (b"1e9", b"1.0", b'["member", 7, null]', b"null"),
    ],
)
def test_task_with_another_listener_at_the_driver_s_address_is_an_orphan(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                client.recv(1000)
                client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Stopped):
            ControlConnection(listener.getsockname(), "secret")
        thread.join()


@pytest.mark.parametrize(
    "words",
    [
        b"[" * 4000 + b"\n",
        b"\n",
        b"7\n",
        b"[]\n",
        b'{"hello": 7}\n',
        b"\xff\xfe\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"x" * 100_000,
    ],
)
def test_connections_of_strangers_do_not_affect_the_driver(
    driver: Driver, words: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(driver.server.address) as stranger:
        stranger.sendall(words)
        with contextlib.suppress(OSError):  # from which it does not read all bytes
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1000) == b""
    with driver.connect() as control:
        control.check_lease()
    assert capfd.readouterr().err == ""


def test_connections_without_token_do_not_keep_tasks_out(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.mirroring.control.strangers.MOST_STRANGERS", 4)
    with contextlib.ExitStack() as held:
        strangers = [
            held.enter_context(socket.create_connection(driver.server.address, timeout=30)) for _ in range(20)
        ]
        for each in strangers[:16]:
            assert each.recv(1) == b""  # the oldest have to leave
        with driver.connect() as control:
            control.check_lease()


def test_first_line_has_one_deadline(impatient: Driver) -> None:
    with socket.create_connection(impatient.server.address, timeout=0.05) as slow:
        wait_until(lambda: is_let_go(slow, b" "))


def test_failing_callback_does_not_end_the_task(caplog: pytest.LogCaptureFixture) -> None:
    def fail(report: TaskReport) -> None:
        raise ZeroDivisionError

    server = ControlServer("127.0.0.1", "secret", Events(fail))
    server.renew(MemberId(), 60.0)
    with caplog.at_level(logging.CRITICAL), ControlConnection(server.address, "secret") as control:
        control.report(TaskReport())
        server.renew(MemberId("later", 1), 60.0)
        wait_until(lambda: control.membership().generation == 1)
    server.close()


def test_task_that_does_not_read_does_not_delay_others(impatient: Driver) -> None:
    with socket.create_connection(impatient.server.address) as deaf:
        deaf.sendall(json.dumps({"hello": "secret", "window": None, "clock_s": 1.0}).encode() + b"\n")
        assert deaf.recv(1)
        with impatient.connect() as control:
            # More than the buffers between the two can hold.
            impatient.server.renew(MemberId("m" * 20_000_000), 60.0)
            wait_until(lambda: len(control.membership().member_id) == 20_000_000)
            impatient.server.renew(MemberId("later", 1), 60.0)
            wait_until(lambda: control.membership().generation == 1)


# Two attempts of a task

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)


def taking(control: ControlConnection, *partitions: TopicPartition) -> Future[Handover]:
    """Ask for partitions in a thread: the driver may let the task wait."""
    outcome: Future[Handover] = Future()
    threading.Thread(target=lambda: outcome.set_result(control.take(partitions)), daemon=True).start()
    return outcome


def test_second_attempt_begins_after_the_first_has_disconnected(driver: Driver) -> None:
    with driver.connect() as first, driver.connect() as second:
        first.take([ORDERS])
        taken = taking(second, ORDERS)
        wait_until(lambda: first.stop_requested)
        assert not first.mirror_ends
        first.check_lease()  # it ends in good order
        assert not taken.done()
        first.close()
        assert taken.result(20).given_up == frozenset()
        second.check_lease()
        assert not second.stop_requested


def test_second_attempt_does_not_wait_for_a_first_that_disconnects_while_the_driver_writes(
    driver: Driver,
) -> None:
    for _ in range(20):
        with driver.connect() as first:
            first.take([ORDERS])
        for _ in range(10):
            driver.server.renew(MemberId(), 60.0)
        with driver.connect() as second:
            assert taking(second, ORDERS).result(20).given_up == frozenset()


def test_second_attempt_begins_after_the_lease_of_a_silent_first(driver: Driver) -> None:
    driver.server.renew(MemberId(), 0.5)
    with driver.connect() as first, driver.connect() as second:
        first.take([ORDERS])
        taken = taking(second, ORDERS)
        wait_until(lambda: first.stop_requested)
        for _ in range(10):
            driver.server.renew(MemberId(), 60.0)  # not for the first
        assert not taken.done()
        assert taken.result(20).given_up == frozenset()
        assert lapses(first)
        second.check_lease()


def test_second_attempt_waits_for_a_first_that_was_disconnected(driver: Driver) -> None:
    """A first that is paused finds its connection closed only when it wakes, and may have its lease then."""
    driver.server.renew(MemberId(), 1.0)
    until = time.monotonic() + 1.0
    with driver.connect() as first:
        first.take([ORDERS])
        assert not driver.server.end_tasks(0.0)
        with driver.connect() as second:
            second.take([ORDERS])
            assert time.monotonic() >= until


class Generations:
    """The generations of a driver's group, and how often it was asked for one."""

    def __init__(self, driver: Driver, delay_s: float = 0.0) -> None:
        self.members = [MemberId("driver", 1)]
        self.asked = 0
        self._driver, self._delay_s = driver, delay_s
        driver.server.renew(self.members[-1], 60.0)
        driver.server.use_group(self._ask)

    def _ask(self) -> None:
        self.asked += 1
        threading.Timer(self._delay_s, self._begin).start()

    def _begin(self) -> None:
        self.members.append(MemberId("driver", len(self.members) + 1))
        self._driver.server.renew(self.members[-1], 60.0)


def test_partition_of_a_task_that_died_is_handed_over_in_a_new_generation(driver: Driver) -> None:
    """Its last commit may still take effect; a coordinator refuses it in the new generation."""
    generations = Generations(driver)
    with driver.connect() as first:
        first.take([PARTITION])
    with driver.connect() as second:
        second.take([PARTITION])
        assert second.membership() == generations.members[-1]
    assert len(generations.members) == 2


COMMITTED = InheritedPosition(POSITION, (1, 1), POSITION)
IN_DOUBT = InheritedPosition(POSITION, (1, 1), None, (POSITION, POSITION))


@pytest.mark.parametrize("left", [COMMITTED, IN_DOUBT])
def test_partition_is_handed_over_with_the_commits_in_doubt(driver: Driver, left: InheritedPosition) -> None:
    """The next task sends what they lead to, too, and so it needs no new generation."""
    generations = Generations(driver)
    with driver.connect() as first:
        leave(driver, first, left)
        assert list(driver.server.uncommitted()[0]) == ([PARTITION] if left is IN_DOUBT else [])
    with driver.connect() as second:
        assert second.take([PARTITION]).left == {PARTITION: left}
    assert len(generations.members) == 1


@pytest.mark.parametrize(("left", "began"), [(COMMITTED, 0), (IN_DOUBT, 1)])
def test_partition_without_its_commits_in_doubt_is_handed_over_in_a_new_generation(
    driver: Driver, left: InheritedPosition, began: int
) -> None:
    generations = Generations(driver)
    with driver.connect() as first:
        leave(driver, first, left)
    driver.server.give_up([PARTITION])
    with driver.connect() as second:
        assert second.take([PARTITION]).left == {}
    assert len(generations.members) == 1 + began


def test_partition_of_a_task_that_took_commits_in_doubt_and_died_needs_a_new_generation(
    driver: Driver,
) -> None:
    generations = Generations(driver)
    with driver.connect() as first:
        leave(driver, first, IN_DOUBT)
    with driver.connect() as second:
        second.take([PARTITION])
    with driver.connect() as third:
        assert third.take([PARTITION]).left == {}
    assert len(generations.members) == 2


def leave(driver: Driver, task: ControlConnection, left: InheritedPosition) -> None:
    """Take the partition, and end in good order."""
    task.take([PARTITION])
    task.report(TaskReport(leaves={PARTITION: left}))
    wait_until(lambda: len(driver.reports) == 1)


def test_partition_left_without_a_position_needs_no_new_generation(driver: Driver) -> None:
    generations = Generations(driver)
    with driver.connect() as first:
        first.take([PARTITION])
        first.report(TaskReport(leaves={PARTITION: None}))
        wait_until(lambda: len(driver.reports) == 1)
    with driver.connect() as second:
        assert second.take([PARTITION]).left == {}
    assert len(generations.members) == 1


def test_generation_that_several_tasks_ask_for_begins_once(driver: Driver) -> None:
    generations = Generations(driver, delay_s=0.2)
    with driver.connect() as first, driver.connect() as second:
        before = [each.generation for each in (first, second)]
        for each in (first, second):
            each.begin_generation()
        wait_until(lambda: [each.generation - 1 for each in (first, second)] == before)
    assert (generations.asked, len(generations.members)) == (1, 2)


def test_fenced_attempt_keeps_the_membership_of_its_generation(driver: Driver) -> None:
    generations = Generations(driver)
    with driver.connect() as second:
        with driver.connect() as first:
            first.take([PARTITION])
            taken = taking(second, PARTITION)
            wait_until(lambda: bool(driver.reports))  # the partition waits
            driver.server.renew(MemberId("driver", 9), 60.0)
            wait_until(lambda: second.membership() == MemberId("driver", 9))
            assert first.membership() == generations.members[0]
        taken.result(5.0)


def test_third_attempt_waits_for_both_earlier_ones(driver: Driver) -> None:
    with driver.connect() as first, driver.connect() as second, driver.connect() as third:
        first.take([ORDERS])
        second_taken = taking(second, ORDERS)
        wait_until(lambda: first.stop_requested)
        third_taken = taking(third, ORDERS)
        assert second_taken.result(20).given_up == {ORDERS}  # it was fenced while it waited
        assert second.stop_requested
        second.close()
        assert not third_taken.done()
        first.close()
        assert third_taken.result(20).given_up == frozenset()


def test_attempts_of_different_partitions_do_not_wait(driver: Driver) -> None:
    with driver.connect() as first, driver.connect() as second:
        first.take([ORDERS])
        assert second.take([CLICKS]).given_up == frozenset()
        assert not first.stop_requested


def test_partitions_of_a_waiting_attempt_are_named(driver: Driver) -> None:
    with driver.connect() as first, driver.connect() as second:
        first.take([ORDERS])
        taken = taking(second, ORDERS)
        wait_until(lambda: bool(driver.reports))
        (partition,) = driver.reports[0]["partitions"]
        assert (partition["topic"], partition["partition"]) == ORDERS
        assert re.search(r"older attempt.* \d+ s\b", partition["waiting_for"])
        driver.server.request_stop()
        assert taken.result(20).given_up == {ORDERS}


def test_two_live_attempts_of_one_task_duplicate_nothing(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    """Records older than producer.id.expiration.ms, and a destination that forgets their producer."""
    day_ms = 86_400_000
    history.base_timestamp = NOW_MS - 30 * day_ms
    history.plain(1)
    assert brokers.run().complete
    history.plain(*[1, 2, 3] * 50)
    brokers.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.002)
    log = brokers.destination.log("topic")
    over = threading.Event()

    def forget() -> None:
        while not over.wait(0.05):
            log.forget_expired_producers(NOW_MS, day_ms)

    threading.Thread(target=forget, daemon=True).start()
    try:
        with driver.connect() as first, driver.connect() as second:
            older = brokers.with_settings(fetch_buffer_bytes=65_836).start(control=first)
            wait_until(lambda: log.log_end_offset > 10)
            newer = brokers.with_settings(fetch_buffer_bytes=66_236).start(control=second)
            assert older.result().stopped == ()
            first.close()
            result = newer.result()
    finally:
        over.set()
    assert (result.complete, result.stopped) == (True, ())
    assert brokers.copied() == history.committed


# A task under control


def slowly(brokers: TwoBrokers, history: History) -> None:
    """Let the destination take its time for each request, so that something can happen meanwhile."""
    history.plain(*[1] * 400)
    brokers.destination.faults.add(ApiKey.PRODUCE, times=None, delay_s=0.01)


def test_stop_during_a_copy_commits_acknowledged_records(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    slowly(brokers, history)
    with driver.connect() as control:
        running = brokers.with_settings(fetch_buffer_bytes=65_536 + 500).start(control=control)
        wait_until(lambda: brokers.destination.log("topic").log_end_offset > 3)
        driver.server.request_stop()
        result = running.result()
    assert not result.complete
    assert result.stopped == ()
    copied = brokers.copied()
    assert 3 < len(copied) < 400
    assert copied == history.committed[: len(copied)]
    assert brokers.position().destination_offset == len(copied)


def test_task_whose_driver_dies_stops_producing_and_fails(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    slowly(brokers, history)
    with driver.connect() as control:
        running = brokers.start(control=control)
        wait_until(lambda: brokers.destination.log("topic").log_end_offset > 3)
        driver.server.close()
        with pytest.raises(Stopped):
            running.result()
    brokers.destination.faults.clear()
    assert len(brokers.copied()) < 400
    brokers.run()
    assert brokers.copied() == history.committed


def test_task_whose_lease_lapses_stops_producing_until_renewal(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    slowly(brokers, history)
    driver.server.renew(MemberId(), 0.3)
    with driver.connect() as control:
        running = brokers.start(control=control)
        wait_until(lambda: lapses(control))
        wait_until(lambda: any(_waits(report) for report in list(driver.reports)))
        copied = len(brokers.copied())
        assert copied < 400
        brokers.destination.faults.clear()
        assert len(brokers.copied()) <= copied + 5  # requests that were in flight
        driver.server.renew(MemberId(), 60.0)
        running.result()
    assert brokers.copied() == history.committed


def test_task_after_a_lapsed_lease_checks_the_destination_before_it_sends(
    brokers: TwoBrokers, history: History, driver: Driver
) -> None:
    history.plain(1)
    with driver.connect() as control:
        running = brokers.start([brokers.ranges()[0]._replace(end_offset=3)], control)
        wait_until(lambda: len(brokers.copied()) == 1)
        asked = brokers.destination.faults.add(ApiKey.OFFSET_FOR_LEADER_EPOCH, times=None)
        driver.server.renew(MemberId(), 0.0)  # lapses, and is renewed, with nothing to send meanwhile
        driver.server.renew(MemberId(), 60.0)
        wait_until(lambda: _is_interrupted(control))
        history.plain(1, 1)
        assert running.result().complete
    assert asked.hits
    assert brokers.copied() == history.committed


def test_changed_membership_is_noticed_before_a_task_sends(driver: Driver) -> None:
    driver.server.renew(MemberId("member", 1), 60.0)
    with driver.connect() as connection:
        first, second = WorkerControl(connection), WorkerControl(connection)
        first.check_lease()
        assert not first.begin()
        driver.server.renew(MemberId("member", 2), 60.0)
        wait_until(lambda: first.membership().generation == 2)
        for control in (first, second):  # each for itself
            with pytest.raises(BrokerError, match=r"consumer.*group"):
                control.check_lease()
            assert control.begin()
            assert not control.begin()
            control.check_lease()
        driver.server.renew(MemberId("member", 2), 60.0)
        driver.server.request_stop()
        wait_until(lambda: first.stop_requested)
        first.check_lease()  # a renewal in time interrupts nothing


def _is_interrupted(control: ControlConnection) -> bool:
    return control.interruptions > 0


def _waits(report: dict[str, Any]) -> bool:
    return any("no heartbeat" in (each["waiting_for"] or "") for each in report.get("partitions", ()))


def test_orphan_without_records_to_send_ends(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    history.plain(1)
    with driver.connect() as control:
        ranges = [brokers.ranges()[0]._replace(end_offset=OPEN_END)]
        running = brokers.start(ranges, control)
        wait_until(lambda: len(brokers.copied()) == 1)
        driver.server.close()
        with pytest.raises(Stopped):
            running.result()


def test_orphan_that_waits_ends(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    brokers = brokers.with_timing(first_retry_ms=600_000, longest_retry_ms=600_000)
    history.plain(1)
    leads_elsewhere(brokers.source, "topic", 0)
    with driver.connect() as control:
        running = brokers.start(control=control)
        wait_until(
            lambda: any(
                each["waiting_for"] for report in list(driver.reports) for each in report["partitions"]
            )
        )
        driver.server.close()
        started = time.process_time()
        with pytest.raises(Stopped):
            running.result(60.0)
        assert time.process_time() - started < 2.0


def test_commits_use_the_new_membership(brokers: TwoBrokers, history: History, driver: Driver) -> None:
    history.plain(1, 2)
    with Cluster(brokers.settings.source) as cluster:
        member = GroupMember(cluster, "mirror", protocol="p", instance_id="i", session_timeout_ms=30_000)
        driver.server.renew(MemberId("somebody", 99), 60.0)
        member.join()
        with driver.connect() as control:
            running = brokers.start(control=control)
            fault = brokers.source.faults.add(ApiKey.OFFSET_COMMIT, times=None)
            assert brokers.source.faults.wait_for(fault, 2)  # refused, and tried again
            driver.server.renew(member.membership, 60.0)
            assert running.result().complete
        member.leave()
    assert brokers.copied() == history.committed
    assert brokers.position().destination_offset == 3


def test_wait_without_driver_lasts_its_time() -> None:
    started = time.monotonic()
    Uncontrolled().wait(0.02)
    assert time.monotonic() - started >= 0.02
    Uncontrolled().check_lease()
    Uncontrolled().report(TaskReport())
    assert Uncontrolled().membership() == MemberId()
