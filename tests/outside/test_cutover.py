"""Cut-overs and ways back from outside: clusters and commands in; records, exit codes and messages out."""

from __future__ import annotations

import json
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rig.shoal import Shoal, run_shoal
from shoal.client.acls import AclBinding, AclOperation, PatternType, Resource
from shoal.client.cluster import Cluster
from shoal.error_codes import ErrorCode
from shoal.mirroring.model.copy_options import copy_rules
from shoal.protocol.apis import ApiKey
from shoal.protocol.codec import response_class
from shoal.topic_partition import TopicPartition
from shoal_broker import Broker
from shoal_broker.call import Call
from shoal_broker.state import Api, BrokerState
from tests.group_member import GroupMember
from tests.integration.shared_spark import shoal
from tests.world import batches
from tests.world.clusters import TwoBrokers
from tests.world.contents import content_of
from tests.world.faults import answers
from tests.world.history import NOW_MS, History
from tests.world.logs import lose_tail
from tests.world.offsets import commit

LITERAL = PatternType.LITERAL


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_way_back_from_a_log_that_lost_its_tail_and_grew_again_is_refused(tmp_path: Path) -> None:
    with TwoBrokers.started() as two:
        for topic in ("whole", "torn"):
            two.topic(topic)[0].plain(3, 4, 2)
        between = (
            "--from",
            two.source.bootstrap,
            "--to",
            two.destination.bootstrap,
            "--topics",
            "whole,torn",
        )
        file = str(tmp_path / "cut.json")
        with Shoal("mirror", "--json", *between, state=tmp_path) as mirror:
            mirror.wait_for(lambda line: line.get("records", 0) == 18)
            moved = ("--groups", ".*", "--allow", "acls", "--timeout", "60", "--certificate", file)
            cut = shoal("cutover", *between, *moved, state=tmp_path)
            assert cut.returncode == 0, cut.stderr
            mirror.send_signal(signal.SIGTERM)
            mirror.wait()

        torn = lose_tail(two.destination, "torn", 7)
        assert torn.log_end_offset == 7
        two.destination.log("whole").begin_leader_epoch(1)  # a new leader that has all records
        for topic in ("whole", "torn"):
            log = two.destination.log(topic)
            grown = History(log)
            for number in range(5):
                value = b"%s %d" % (topic.encode(), number)
                new = batches.batch(
                    [value], base_offset=grown.next_offset, base_timestamp=NOW_MS, leader_epoch=1
                )
                grown.store(new, shown=True)

        back = ("mirror", "--from", two.destination.bootstrap, "--to", two.source.bootstrap, "--once")
        before = content_of(two.source.log("torn"))
        for more in (("--dry-run",), ()):
            refused = shoal(*back, "--topics", "torn", "--from-certificate", file, *more, state=tmp_path)
            assert refused.returncode == 2, (refused.stdout, refused.stderr)
            sentence = refused.stderr.splitlines()[-1]
            assert re.search(r"torn-0.*records.*7.*9", sentence)
            assert "--rename" in sentence
        assert content_of(two.source.log("torn")) == before

        done = shoal(*back, "--topics", "whole", "--from-certificate", file, state=tmp_path)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert content_of(two.source.log("whole")) == content_of(two.destination.log("whole"))


ORDERS = TopicPartition("orders", 0)
GROUP = "shoal.source.destination"


@dataclass
class Move:
    """A topic that is mirrored up to its end, and the command that moves it."""

    two: TwoBrokers
    history: History
    file: Path
    mirror: GroupMember

    def cut(
        self, *more: str, at: str = "", then: Callable[[], object] = lambda: None, drift: str = "acls"
    ) -> tuple[int | None, str, str]:
        """Run the cut-over; return its exit code, its output, and its last sentence.

        Args:
            at: A regular expression; `then` is called once a line has it.
        """
        between = (*self.two.between, "--topics", "orders", "--certificate", str(self.file))
        given = ("--groups", ".*", "--allow", drift, "--timeout", "4")
        with Shoal("cutover", *between, *given, *more) as process:
            if at:
                process.wait_for_line(at)
                then()
            process.wait()
        return process.exit_code, process.stdout, process.stderr.splitlines()[-1]


@contextmanager
def started_move(file: Path) -> Iterator[Move]:
    with TwoBrokers.started() as two:
        rules = copy_rules(two.settings.source)
        two = two.with_settings(group=GROUP, rules=rules)
        (history,) = two.topic("orders")
        history.plain(3, 4, 2)
        two.run(two.ranges("orders"))
        with Cluster(two.settings.source) as cluster:
            mirror = GroupMember(cluster, GROUP, protocol="shoal-1", instance_id="shoal-1")
            mirror.join([ORDERS])
            yield Move(two, history, file, mirror)


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    with started_move(tmp_path / "cut.json") as found:
        yield found


def test_cutover_of_groups_that_followed_before_counts_their_offsets_as_in_place(move: Move) -> None:
    commit(move.two.source, "app", 7, "orders")
    code, output, _ = move.cut()
    assert (code, "(1 newly committed)" in output) == (0, True)
    move.file = move.file.with_name("again.json")
    code, output, _ = move.cut()
    assert (code, "(0 newly committed)" in output) == (0, True)


def test_cutover_after_a_late_write_names_the_producers_as_the_remedy(move: Move) -> None:
    """A consumer at the source holds up the gate of the groups, and then a producer writes."""
    commit(move.two.source, "app", 7, "orders")
    with Cluster(move.two.settings.source) as cluster:
        GroupMember(cluster, "app", protocol="range", instance_id="one").join([ORDERS])
        code, _, sentence = move.cut(at="gate 5 of 6.*waits until", then=lambda: move.history.plain(1))
    assert (code, "gate 'groups' failed" in sentence) == (1, True)
    assert re.search(r"orders-0.*source.*9.*10", sentence)
    assert re.search(r"producers.*source", sentence)
    assert "leave out the group" not in sentence


def test_cutover_whose_certificate_appears_meanwhile_asks_for_a_new_file(move: Move) -> None:
    code, _, sentence = move.cut(at="gate 3 of 6", then=lambda: move.file.write_text("another run's"))
    assert (code, "gate 'certificate' failed" in sentence) == (1, True)
    assert "File exists" in sentence
    assert "--certificate" in sentence
    assert "producers" not in sentence


def test_gate_shows_the_offset_that_is_further_at_the_destination(move: Move) -> None:
    commit(move.two.source, "app", 7, "orders")
    commit(move.two.destination, "app", 8, "orders")
    code, _, sentence = move.cut("--timeout", "1")
    assert code == 1
    assert re.search(r"'app'.*orders-0.*7.*8", sentence)


def test_cutover_waits_for_a_destination_that_starts_again_in_its_verification(move: Move) -> None:
    faults = move.two.destination.faults

    def restart() -> None:
        faults.add(ApiKey.LIST_OFFSETS, error=ErrorCode.LEADER_NOT_AVAILABLE, times=6)

    code, _, sentence = move.cut("--timeout", "60", at="gate 4 of 6.*waits until", then=restart)
    assert code == 0, sentence


#: Kafka 4.1 prints its request as a Java object.
_REFUSAL = (
    "Request Request(processor=2, connectionId=127.0.0.1:9092-1, session=org.apache.kafka.network.Session@"
    "528e2f25, buffer=null, envelope=None) needs DESCRIBE permission."
)


def test_cutover_without_describe_on_the_cluster_prints_the_missing_acl(move: Move) -> None:
    response = response_class(ApiKey.DESCRIBE_ACLS)

    def refuse(broker: BrokerState, call: Call, request: Any) -> Any:
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return response(throttle_time_ms=0, error_code=code, error_message=_REFUSAL, resources=[])

    for broker in (move.two.source, move.two.destination):
        broker.apis = {**broker.apis, ApiKey.DESCRIBE_ACLS: Api(ApiKey.DESCRIBE_ACLS, 1, 3, refuse)}
    code, _, sentence = move.cut(drift="configs")
    assert code == 1
    assert re.search(r"DESCRIBE.*cluster", sentence)
    command = sentence.partition("kafka-acls.sh ")[2]
    assert command.startswith(f"--bootstrap-server {move.two.source.bootstrap} --add ")
    assert "--operation Describe --cluster" in command
    assert "Session@" not in sentence
    assert "IDEMPOTENT_WRITE" not in sentence
    assert "--sync configs" not in sentence


def test_groups_of_a_broker_that_refuses_to_list_them_names_describe_as_the_missing_right(move: Move) -> None:
    move.two.source.faults.add(ApiKey.LIST_GROUPS, error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
    run = run_shoal("groups", *move.two.between, "--topics", "orders", "--groups", ".*")
    assert run.returncode != 0, run.stdout
    assert re.search(r"DESCRIBE.*cluster", run.stderr + run.stdout)
    assert "WRITE" not in run.stderr + run.stdout


def test_gate_quiet_of_a_log_that_grows_between_requests_names_no_transaction(move: Move) -> None:
    """The producer has no transactions, and the one broker has no followers."""
    broker = move.two.source
    is_quiet = threading.Event()

    def grow(response: Any) -> Any:
        if is_quiet.is_set():
            move.history.plain(1)
        return response

    for api in (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH):
        answers(broker, api, grow, math.inf)

    code, output, sentence = move.cut("--timeout", "2", at="gate 3 of 6.*waits until", then=is_quiet.set)
    assert (code, "gate 'quiet'" in sentence) == (1, True)
    assert re.search(r"source.*0", sentence)
    assert "transaction is open" not in sentence + output
    assert "followers lack" not in sentence + output


def test_way_back_refuses_a_certificate_with_a_number_changed_by_hand(move: Move) -> None:
    code, _, sentence = move.cut()
    assert code == 0, sentence
    move.mirror.leave()
    two = move.two
    History(two.destination.log("orders")).plain(2)  # so that the larger number is not behind the end
    between = ["--from", two.destination.bootstrap, "--to", two.source.bootstrap, "--topics", "orders"]
    command = ["mirror", *between, "--group", "back", "--dry-run"]
    command += ["--from-certificate", str(move.file)]
    as_written = run_shoal(*command)
    assert as_written.returncode == 0, as_written.stderr

    values = json.loads(move.file.read_text())
    values["partitions"][0]["destination"]["end"] += 1
    move.file.write_text(json.dumps(values, indent=2))
    refused = run_shoal(*command)
    assert refused.returncode == 2, refused.stdout
    assert f"{str(move.file)!r}" in refused.stderr
    assert re.search(r"digest.*content", refused.stderr)

    del values["digest"]
    move.file.write_text(json.dumps(values))
    refused = run_shoal(*command)
    assert (refused.returncode, "'digest' is missing" in refused.stderr) == (2, True)


def serve_acls(broker: Broker, *bindings: AclBinding) -> None:
    """Let an embedded broker, which has no authorizer, answer with these ACLs."""
    response = response_class(ApiKey.DESCRIBE_ACLS)
    resource = response.DescribeAclsResource

    def answer(state: BrokerState, call: Call, request: Any) -> Any:
        return response(
            throttle_time_ms=0,
            error_code=0,
            error_message=None,
            resources=[
                resource(
                    resource_type=each.resource,
                    resource_name=each.name,
                    pattern_type=each.pattern,
                    acls=[
                        resource.AclDescription(
                            principal=each.principal,
                            host=each.host,
                            operation=each.operation,
                            permission_type=3 if each.allows else 2,
                        )
                    ],
                )
                for each in bindings
                if each.resource == request.resource_type_filter
            ],
        )

    broker.apis = {**broker.apis, ApiKey.DESCRIBE_ACLS: Api(ApiKey.DESCRIBE_ACLS, 1, 3, answer)}


def allowed(
    user: str, operation: AclOperation, resource: Resource, name: str, pattern: PatternType = LITERAL
) -> AclBinding:
    return AclBinding(resource, pattern, name, f"User:{user}", "*", operation, True)


@pytest.mark.parametrize(("pattern", "name"), [(PatternType.PREFIXED, "shoal."), (LITERAL, "*")])
def test_cutover_compares_effective_rights_without_those_of_the_mirror(
    move: Move, pattern: PatternType, name: str
) -> None:
    commit(move.two.source, "app", 7, "orders")
    operation, kind = AclOperation, Resource
    serve_acls(
        move.two.source,
        allowed("app", operation.DESCRIBE, kind.GROUP, "app"),
        allowed("app", operation.READ, kind.TOPIC, "orders"),
        allowed("mirror", operation.READ, kind.GROUP, name, pattern),
        allowed("mirror", operation.READ, kind.TOPIC, "orders"),
        allowed("mirror", operation.DESCRIBE_CONFIGS, kind.TOPIC, "orders"),
    )
    present = [
        allowed("app", operation.READ, kind.GROUP, "app"),
        allowed("app", operation.READ, kind.TOPIC, "orders"),
    ]
    serve_acls(move.two.destination, *present)
    code, _, sentence = move.cut(drift="configs")
    assert code == 0, sentence


def test_cutover_names_the_lacking_acl_of_a_consumer_that_may_join_every_group(move: Move) -> None:
    serve_acls(
        move.two.source,
        allowed("app", AclOperation.READ, Resource.GROUP, "*"),
        allowed("app", AclOperation.READ, Resource.TOPIC, "orders"),
    )
    serve_acls(move.two.destination, allowed("app", AclOperation.READ, Resource.GROUP, "*"))
    code, _, sentence = move.cut("--timeout", "1", drift="configs")
    assert code == 1
    assert re.search(r"destination.*ACL.*READ", sentence)
