"""``shoal control FILE continue``: one stuck topic is healed without a restart, and only this once."""

from __future__ import annotations

import re
import signal
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rig import wait_until
from rig.shoal import Shoal, run_shoal
from shoal_broker import Broker
from tests.hasty import hasty

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 40
#: Those of ``--continue-after``.
KINDS = ("foreign-records", "destination-loss", "source-reset", "source-retention")


def load(bootstrap: str, topic: str, records: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(records):
        producer.produce(topic, b"value %d" % number, partition=number % 2)
    assert producer.flush(60) == 0


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def records_in(bootstrap: str, topic: str) -> int:
    """Return the number of offsets in the topic's two partitions; 0 if it does not exist."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counts", "log_level": 0})
    try:
        if topic not in consumer.list_topics(timeout=10).topics:
            return 0
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10) for each in range(2)]
        return sum(end - start for start, end in ends)
    finally:
        consumer.close()


def control(socket: Path, *words: str) -> tuple[int, str]:
    done = run_shoal("control", str(socket), *words)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_stopped_topic_continues_once_and_the_others_stay_stopped(tmp_path: Path) -> None:
    socket = tmp_path / "control.sock"
    with Broker() as free:
        metrics_port = free.port
    with Broker() as source, Broker() as destination:
        here, there = admin_of(source.bootstrap), admin_of(destination.bootstrap)
        for topic in ("first", "second", "third"):
            here.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
            load(source.bootstrap, topic)

        def delete(topic: str) -> None:
            there.delete_topics([topic])[topic].result(60)

        def copied(topic: str) -> int:
            return records_in(destination.bootstrap, topic)

        arguments = ["--from", source.bootstrap, "--to", destination.bootstrap, "--control", str(socket)]
        arguments += ["--topics", "first,second,third", "--refresh", "1"]
        arguments += ["--metrics", f"127.0.0.1:{metrics_port}"]
        with Shoal(
            "mirror", "--json", *arguments, state=tmp_path / "state", program=hasty(places_look_s=2.0)
        ) as mirror:
            mirror.wait_for(lambda line: line.get("states", {}).get("up to date") == 6)
            before = control(socket, "continue", "first", "destination-loss")
            assert (before[0], "'first'" in before[1]) == (1, True), before
            delete("first")
            delete("second")
            mirror.wait_for(lambda line: len(line["stopped"]) == 4)
            for words, sentence in [
                (("first", "send-failure"), "'send-failure' is not one of "),
                (("first", "source-gap"), f"'source-gap' is not one of {', '.join(KINDS)}"),
                (("first", "foreign-records"), "not stopped by foreign-records, but by destination-loss"),
                (("first-7", "destination-loss"), "no topic and no partition 'first-7'"),
                (("fourth", "destination-loss"), "no topic and no partition 'fourth'"),
                (("third", "destination-loss"), "'third' is not stopped"),
            ]:
                code, text = control(socket, "continue", *words)
                assert (code, sentence in text) == (1, True), text

            code, text = control(socket, "continue", "first", "destination-loss")
            assert (code, re.findall(r"\w+-\d", text)) == (0, ["first-0", "first-1"]), text
            assert "destination-loss" in text
            line = mirror.wait_for(lambda line: line["stopped"].keys() == {"second-0", "second-1"})
            wait_until(lambda: copied("first") == RECORDS, "the first topic's records")
            continued = [each for each in line["incidents"] if each["continued"]]
            kinds = [(each["partition"], each["kind"]) for each in continued]
            assert sorted(kinds) == [("first-0", "destination-loss"), ("first-1", "destination-loss")]
            # The mirror itself created the topic.
            reasons = [each["reason"] for each in continued]
            assert all("ends at offset 0" in each for each in reasons), reasons
            load(source.bootstrap, "first", 2)
            wait_until(lambda: copied("first") == RECORDS + 2, "new records")
            with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as answer:
                # Four stops, and two continued.
                assert 'shoal_incidents_total{kind="destination-loss"} 6' in answer.read().decode()

            delete("first")  # a second incident, which the operator has not accepted
            mirror.wait_for(lambda line: len(line["stopped"]) == 4)
            assert copied("first") == 0

            code, text = control(socket, "continue", "second-1", "destination-loss")
            assert (code, re.findall(r"\w+-\d", text)) == (0, ["second-1"]), text
            mirror.wait_for(lambda line: line["stopped"].keys() == {"first-0", "first-1", "second-0"})
            wait_until(lambda: copied("second") == RECORDS / 2, "one partition of the second topic")
            mirror.send_signal(signal.SIGTERM)
            summary = mirror.wait()
        assert (mirror.exit_code, summary["exit_code"]) == (1, 1)  # three are still stopped
        assert re.search(r"first-0.*first-1", mirror.stderr)
        # Both partitions may be in one line.
        assert re.search(r"first-0.* continued after", mirror.stderr)
