"""The driver's lines reach its tasks, their reports reach it, and neither outlives the other."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from shoal.client.coordinator import MemberId
from shoal.errors import BrokerError, Stopped
from shoal.mirroring.assignment import Wanted
from shoal.mirroring.control import ControlConnection, ControlServer, WorkerControl
from shoal.mirroring.control.protocol import lease_clock_s
from shoal.mirroring.model.ranges import OPEN_END, CopyRange
from shoal.mirroring.model.reports import Left, TaskReport
from shoal.timing import Timing
from shoal.topic_partition import TopicPartition
from tests.world.clusters import TwoBrokers
from tests.world.control import partitions_of
from tests.world.driver import Events, TaskServer
from tests.world.faults import leads_elsewhere
from tests.world.history import History
from tests.world.waiting import is_let_go, wait_until

PARTITION = TopicPartition("topic", 0)


@pytest.fixture
def driver() -> Iterator[TaskServer]:
    started = TaskServer()
    yield started
    started.server.close()


@pytest.fixture
def impatient() -> Iterator[TaskServer]:
    """A driver that waits a second at most for a connection that neither sends nor reads."""
    started = TaskServer(Timing(first_line_s=0.5, tell_s=1))
    yield started
    started.server.close()


def lapses(control: ControlConnection) -> bool:
    try:
        control.check_lease()
    except (Stopped, BrokerError):
        return True
    return False


def test_lease_lapses_after_its_time(driver: TaskServer) -> None:
    driver.server.renew(MemberId(), 0.05)
    with driver.connect() as control:
        wait_until(lambda: lapses(control))
        assert not control.stop_requested
        driver.server.renew(MemberId(), 60.0)
        wait_until(lambda: not lapses(control))
        assert control.interruptions == 1


def test_gate_moves_with_each_renewal(driver: TaskServer) -> None:
    with driver.connect() as control, WorkerControl(control).gate() as gate:
        assert gate is not None
        before = gate[0]
        assert 0 < before < (lease_clock_s() + 60) * 1e9
        driver.server.renew(MemberId(), 90.0)
        wait_until(lambda: gate[0] > before + 20e9)


def test_gate_closes_for_good_at_an_interruption(driver: TaskServer) -> None:
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


def test_gate_of_an_orphan_closes(driver: TaskServer) -> None:
    with driver.connect() as control, WorkerControl(control).gate() as gate:
        assert gate is not None
        driver.server.close()
        wait_until(lambda: gate[0] == 0)


def test_lease_line_delayed_in_the_socket_does_not_extend_the_lease() -> None:
    """As in a task that was stopped (SIGSTOP) for longer than its lease."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        read_on = threading.Event()

        def serve() -> None:
            client, _ = listener.accept()
            with client:
                hello = json.loads(client.makefile("rb").readline())
                given = STATE % (
                    json.dumps(hello["clock_s"]).encode(),
                    b"0.05",
                    member(b'"m"', b"1"),
                    b"false",
                )
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


def test_lease_counts_from_the_newest_clock_line_of_the_driver(driver: TaskServer) -> None:
    driver.server.renew(MemberId(), 0.5)
    with driver.connect() as control:
        began = time.monotonic()
        while time.monotonic() < began + 1.0:
            driver.server.renew(MemberId(), 0.5)  # each line is answered with the task's clock
            assert not lapses(control)
            control.wait(0.05)
        assert control.interruptions == 0


def test_task_without_driver_has_no_lease_and_no_stop_request(driver: TaskServer) -> None:
    with driver.connect() as control:
        control.check_lease()
        driver.server.close()
        wait_until(lambda: lapses(control))
        assert not control.stop_requested
        control.report(TaskReport())  # no task receives it, without an error
        control.wait(3600.0)  # it returns at once


@pytest.mark.parametrize("token", ["wrong", "", "sécret", "secret "])
def test_wrong_token_is_refused(driver: TaskServer, token: str) -> None:
    with pytest.raises(Stopped, match=r"another.*program"):
        ControlConnection(driver.server.address, token)


def test_task_without_listener_at_the_driver_s_address_is_an_orphan() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(Stopped, match=r"127\.0\.0\.1"):
        ControlConnection(address, "secret")


def member(name: bytes, generation: bytes) -> bytes:
    return b'{"member_id": %s, "generation": %s, "instance_id": null}' % (name, generation)


MEMBER = member(b'"member"', b"7")

STATE = (
    b'{"shoal": "%s", "clock_s": %%s, '
    b'"lease_s": %%s, "membership": %%s, "stop": %%s, '
    b'"steering": {"paused": [], "bytes_per_s": null}, "credentials": ""}\n'
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
        STATE % (b"0.0", b"NaN", MEMBER, b"false"),
        STATE % (b"0.0", b"1e300", MEMBER, b"false"),
        STATE % (b"0.0", b"-1.0", MEMBER, b"false"),
        STATE % (b"0.0", b"1.0", member(b"7", b"7"), b"false"),
        STATE % (b"0.0", b"1.0", b'{"member_id": "member"}', b"false"),
        STATE % (b"0.0", b"1.0", MEMBER, b'"3"'),
        STATE % (b"0.0", b"1.0", MEMBER, b"NaN"),
        STATE % (b"NaN", b"1.0", MEMBER, b"false"),
        STATE % (b"1e9", b"1.0", MEMBER, b"false"),
        (STATE % (b"0.0", b"1.0", MEMBER, b"false")).replace(b"null},", b"0},"),
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
    driver: TaskServer, words: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(driver.server.address) as stranger:
        stranger.sendall(words)
        with contextlib.suppress(OSError):  # from which it does not read all bytes
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1000) == b""
    with driver.connect() as control:
        control.check_lease()
    assert capfd.readouterr().err == ""


def test_connections_without_token_do_not_keep_tasks_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.mirroring.control.server.MOST_STRANGERS", 4)
    driver = TaskServer()
    with contextlib.ExitStack() as held:
        held.callback(driver.server.close)
        strangers = [
            held.enter_context(socket.create_connection(driver.server.address, timeout=30)) for _ in range(20)
        ]
        for each in strangers[:16]:
            assert each.recv(1) == b""  # the oldest have to leave
        with driver.connect() as control:
            control.check_lease()


def test_first_line_has_one_deadline(impatient: TaskServer) -> None:
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


def test_line_of_a_task_that_the_driver_cannot_handle_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    mistakes = ["a mistake of the driver"]

    def fail_once() -> Mapping[TopicPartition, str]:
        if mistakes:
            raise KeyError(mistakes.pop())
        return {}

    server = ControlServer("127.0.0.1", "secret", Events(in_trouble=fail_once))
    server.renew(MemberId(), 60.0)
    try:
        with socket.create_connection(server.address, timeout=10) as stranger:
            stranger.sendall(b"{}\n")
            assert stranger.recv(1) == b""
        assert caplog.records == []
        with ControlConnection(server.address, "secret"):
            wait_until(lambda: bool(caplog.records))
    finally:
        server.close()
    assert {each.name for each in caplog.records} == {"shoal.control"}


def test_task_that_does_not_read_does_not_delay_others(impatient: TaskServer) -> None:
    with socket.create_connection(impatient.server.address) as deaf:
        deaf.sendall(json.dumps({"hello": "secret", "job": 0, "attempt": 0, "clock_s": 1.0}).encode() + b"\n")
        assert deaf.recv(1)
        with impatient.connect() as control:
            # More than the buffers between the two can hold.
            impatient.server.renew(MemberId("m" * 20_000_000), 60.0)
            wait_until(lambda: len(control.membership().member_id) == 20_000_000)
            impatient.server.renew(MemberId("later", 1), 60.0)
            wait_until(lambda: control.membership().generation == 1)


class ByHand:
    """A task that sends each line when its test wants it to."""

    def __init__(self, driver: TaskServer) -> None:
        self._connection = socket.create_connection(driver.server.address)
        self._send({"hello": "secret", "job": 0, "attempt": 0})
        self._lines = self._connection.makefile("rb")
        self.read()

    def _send(self, said: dict[str, Any]) -> None:
        self._connection.sendall(json.dumps({**said, "clock_s": lease_clock_s()}).encode() + b"\n")

    def tell(self, *, waits: bool) -> None:
        self._send({"waits": waits})

    def read(self) -> Any:
        return json.loads(self._lines.readline())

    def __enter__(self) -> ByHand:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._lines.close()
        self._connection.close()


def test_pause_does_not_share_the_limit_out_again(driver: TaskServer) -> None:
    with ByHand(driver) as one, ByHand(driver) as other:
        one.tell(waits=True)
        other.tell(waits=False)
        driver.server.steer(limit=1_000_000)
        parts = [each.read()["steering"]["bytes_per_s"] for each in (one, other)]
        for number in range(5):
            driver.server.steer(frozenset([f"topic-{number}"]), 1_000_000)
        for each, part in zip((one, other), parts, strict=True):
            assert [each.read()["steering"]["bytes_per_s"] for _ in range(5)] == [part] * 5


# Partitions move from task to task

ORDERS = TopicPartition("orders", 0)
CLICKS = TopicPartition("clicks", 0)


def want(driver: TaskServer, *partitions: TopicPartition) -> None:
    """Have partitions copied, each of leaders of its own."""
    driver.server.want(
        {
            each: Wanted(CopyRange(*each, each.topic, 0, OPEN_END), (number, number))
            for number, each in enumerate(partitions)
        }
    )


def entry(control: ControlConnection, partition: TopicPartition) -> int:
    """The number of a partition's entry in a task's document; 0 if it has none."""
    assigned = control.assignment.get(partition)
    return 0 if assigned is None else assigned.entry


def leave(control: ControlConnection, partition: TopicPartition, *, is_settled: bool = True) -> None:
    """Leave a partition that the task has, or had."""
    left = Left(control.assignment[partition].entry, is_settled)
    control.report(TaskReport(leaves={partition: left}))


def has(control: ControlConnection, *partitions: TopicPartition) -> bool:
    return set(control.assignment) == set(partitions)


def test_report_of_leaving_that_is_about_a_former_entry_is_ignored(driver: TaskServer) -> None:
    want(driver, ORDERS)
    with driver.connect() as first, driver.connect() as second:
        wait_until(lambda: has(first, ORDERS) or has(second, ORDERS))
        holder, other = (first, second) if has(first, ORDERS) else (second, first)
        stale = TaskReport(leaves={ORDERS: Left(entry(holder, ORDERS))})
        leave(holder, ORDERS)
        wait_until(lambda: entry(holder, ORDERS) > stale.leaves[ORDERS].entry or has(other, ORDERS))
        holder.report(stale)
        wait_until(lambda: len(driver.reports) == 2)
        driver.server.look()
        assert entry(first, ORDERS) + entry(second, ORDERS) == stale.leaves[ORDERS].entry + 1


def test_partition_does_not_wait_for_a_task_that_disconnects_while_the_driver_writes(
    driver: TaskServer,
) -> None:
    want(driver, ORDERS)
    for _ in range(20):
        with driver.connect() as first:
            wait_until(lambda: has(first, ORDERS))
        for _ in range(10):
            driver.server.renew(MemberId(), 60.0)


class Silent:
    """A task that has said hello, and neither reads nor sends since: its process is stopped."""

    def __init__(self, driver: TaskServer) -> None:
        self._connection = socket.create_connection(driver.server.address)
        hello = {"hello": "secret", "job": 0, "attempt": 0, "clock_s": lease_clock_s()}
        self._connection.sendall(json.dumps(hello).encode() + b"\n")
        wait_until(lambda: driver.server.tasks == 1)

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()


def test_partition_of_a_silent_task_moves_after_its_lease(driver: TaskServer) -> None:
    driver.server.close()
    driver = TaskServer(lease_s=1.0)
    want(driver, ORDERS)
    with Silent(driver):
        until = time.monotonic() + 0.8
        with driver.connect() as second:

            def look() -> bool:
                driver.server.renew(MemberId(), 1.0)
                return has(second, ORDERS)

            wait_until(look)
            assert time.monotonic() > until
    driver.server.close()


def test_silent_task_keeps_its_partitions_without_another(driver: TaskServer) -> None:
    driver.server.renew(MemberId(), 60.0)
    want(driver, ORDERS)
    with Silent(driver):
        driver.server.look()
        assert driver.server.tasks == 1


def test_task_that_does_not_leave_in_time_becomes_an_orphan() -> None:
    driver = TaskServer(Timing(leaving_patience_s=0.1))
    driver.server.renew(MemberId(), 1.0)
    want(driver, ORDERS, CLICKS)
    with driver.connect() as first:
        wait_until(lambda: has(first, ORDERS, CLICKS))
        with driver.connect() as second:
            wait_until(lambda: len(first.assignment) == 1)

            def look() -> bool:
                driver.server.renew(MemberId(), 1.0)
                return has(second, ORDERS, CLICKS)

            wait_until(look)
            wait_until(lambda: lapses(first))
    driver.server.close()


def test_withdrawn_partition_is_left_or_its_task_is_let_go(driver: TaskServer) -> None:
    want(driver, ORDERS)
    with driver.connect() as first:
        wait_until(lambda: has(first, ORDERS))
        left = TaskReport(leaves={ORDERS: Left(entry(first, ORDERS))})
        driver.server.withdraw([ORDERS])
        wait_until(lambda: has(first))
        assert not driver.server.await_left([CLICKS, ORDERS], 0.05) or left is None
        wait_until(lambda: lapses(first))
    with driver.connect() as second:
        driver.server.look()
        assert has(second)


class Generations:
    """The generations of a driver's group, and how often it was asked for one."""

    def __init__(self, driver: TaskServer, delay_s: float = 0.0) -> None:
        self.members = [MemberId("driver", 1)]
        self.asked = 0
        self._driver, self._delay_s = driver, delay_s
        driver.server.renew(self.members[-1], 60.0)
        driver.server.use_group(self._ask)
        want(driver, PARTITION)

    def _ask(self) -> None:
        self.asked += 1
        threading.Timer(self._delay_s, self._begin).start()

    def _begin(self) -> None:
        self.members.append(MemberId("driver", len(self.members) + 1))
        self._driver.server.renew(self.members[-1], 60.0)


def pass_on(driver: TaskServer, *, is_settled: bool) -> None:
    """Let a task leave the partition, and end in good order."""
    with driver.connect(job=7) as first:
        wait_until(lambda: has(first, PARTITION))
        reports = len(driver.reports)
        driver.server.end_one(7)
        leave(first, PARTITION, is_settled=is_settled)
        wait_until(lambda: len(driver.reports) > reports)
    wait_until(lambda: not driver.server.tasks)


def test_partition_left_with_a_commit_in_doubt_begins_in_a_new_generation(driver: TaskServer) -> None:
    generations = Generations(driver)
    pass_on(driver, is_settled=False)
    with driver.connect() as second:
        wait_until(lambda: has(second, PARTITION))
        assert len(generations.members) == 2


def test_partition_left_without_a_doubt_needs_no_new_generation(driver: TaskServer) -> None:
    generations = Generations(driver)
    pass_on(driver, is_settled=True)
    with driver.connect() as second:
        wait_until(lambda: has(second, PARTITION))
    assert len(generations.members) == 1


def test_generation_that_several_tasks_ask_for_begins_once(driver: TaskServer) -> None:
    generations = Generations(driver, delay_s=0.2)
    with driver.connect() as first, driver.connect() as second:
        before = [each.generation for each in (first, second)]
        for each in (first, second):
            each.begin_generation()
        wait_until(lambda: [each.generation - 1 for each in (first, second)] == before)
    assert (generations.asked, len(generations.members)) == (1, 2)


def test_job_that_was_ended_gets_no_partition(driver: TaskServer) -> None:
    want(driver, ORDERS)
    driver.server.end_one(3)
    with driver.connect(job=3) as late, driver.connect() as other:
        wait_until(lambda: late.stop_requested)
        wait_until(lambda: has(other, ORDERS))


# A task under control


def test_orphan_that_waits_ends(brokers: TwoBrokers, history: History, driver: TaskServer) -> None:
    brokers = brokers.with_timing(first_retry_ms=600_000, longest_retry_ms=600_000)
    history.plain(1)
    leads_elsewhere(brokers.source, "topic", 0)
    with driver.connect() as control:
        running = brokers.start(control=control)
        wait_until(lambda: any(each["waiting_for"] for each in partitions_of(driver)))
        driver.server.close()
        with pytest.raises(Stopped):
            running.result(60.0)
