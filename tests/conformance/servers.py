"""The servers that the conformance tests talk to, and the tests that apply to each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

import pytest

from shoal.protocol.apis import ApiKey
from shoal_broker import Broker
from tests.broker.wire import Wire
from tests.conformance.broken import BROKEN
from tests.world.clocks import Ahead

__all__ = [
    "Server",
    "add_option",
    "chosen",
    "every_server",
    "running",
    "runs_every_test",
    "server_named",
    "tier_of",
]

#: The version of Kafka whose rules the embedded broker follows.
_EMBEDDED_VERSION = "4.1"

#: The first version that serves the newest versions of requests that the tests send.
_FIRST_WITH_ALL = "4.0"

#: A real coordinator looks for timed-out transactions every 10 s by default.
_TRANSACTION_CHECK = "transaction.abort.timed.out.transaction.cleanup.interval.ms"


@dataclass(frozen=True)
class Server:
    """
    One server that speaks Kafka's protocol.

    Attributes:
        name: ``embedded``, ``gateway``, ``kafka-VERSION``, ``agent-VERSION``, or an address.
        version: The version of Kafka whose rules it follows.
        bootstrap: Its address; empty before it runs.
        is_ours: The embedded broker answers the requests, in this process.
        has_gateway: Requests go through shoal's gateway.
        has_agent: Real Kafka, with shoal's Java agent.
        broken: The rule that the embedded broker breaks (:mod:`tests.conformance.broken`); empty for none.
        newest: The newest version of each API, if `has_old_requests`; otherwise empty.
        clock: The clock that ends the embedded broker's sessions, rebalances and transactions.

    """

    name: str
    version: str
    bootstrap: str = ""
    is_ours: bool = False
    has_gateway: bool = False
    has_agent: bool = False
    broken: str = ""
    newest: Mapping[int, int] = field(default_factory=dict, hash=False)
    clock: Ahead = field(default_factory=Ahead, compare=False)

    @property
    def takes_several_batches(self) -> bool:
        """Whether it takes several batches of a partition in a request, from clients that ask for it."""
        return self.has_agent or (self.is_ours and not self.has_gateway)

    @property
    def has_old_requests(self) -> bool:
        """Whether tests send newer versions of requests than it serves.

        The gateway stops at versions whose answers have no brokers' addresses.
        """
        return self.has_gateway or self.is_before(_FIRST_WITH_ALL)

    def is_before(self, version: str) -> bool:
        """Return whether it follows the rules of an older Kafka than this one."""
        return _numbers(self.version) < _numbers(version)

    def applies(self, marks: Mapping[str, pytest.Mark]) -> bool:
        """Return whether a test with these marks, by their names, applies to this server."""
        if "not_before" in marks and self.is_before(marks["not_before"].args[0]):
            return False
        if "administrators" in marks and self.has_gateway:
            return False
        if "several_batches" in marks:
            return self.takes_several_batches
        return "one_batch" not in marks or not self.takes_several_batches


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def server_named(name: str) -> Server:
    """Return a server that does not run yet, or the one that runs at an address."""
    from rig.jars import KAFKA_VERSION

    if "/" in name:
        kind, _, broken = name.partition("/")
        return replace(server_named(kind), broken=broken)
    if name in ("embedded", "gateway"):
        return Server(name, _EMBEDDED_VERSION, is_ours=True, has_gateway=name == "gateway")
    if ":" in name:
        return Server(name, KAFKA_VERSION, bootstrap=name)
    kind, _, version = name.partition("-")
    if kind not in ("kafka", "agent") or not version.replace(".", "").isdigit():
        raise pytest.UsageError(
            f"--server {name}: name embedded, gateway, kafka-4.4.0, agent-4.4.0, or HOST:PORT"
        )
    return Server(name, version, has_agent=kind == "agent")


def every_server() -> list[Server]:
    """Return the servers of all tiers."""
    from rig.agent import newest_of_each_line
    from rig.jars import KAFKA_3_VERSION, KAFKA_VERSION, OLD_KAFKA_VERSION

    kafkas = [f"kafka-{version}" for version in (KAFKA_VERSION, KAFKA_3_VERSION, OLD_KAFKA_VERSION)]
    agents = [f"agent-{version}" for version in reversed(newest_of_each_line())]
    return [server_named(name) for name in ("embedded", "gateway", *kafkas, *agents)]


def tier_of(server: Server, marks: Mapping[str, pytest.Mark]) -> str | None:
    """Return the mark of the tier in which a test runs on a server, or None for the first tier.

    The second tier has the newest Kafka. With the agent it has the tests of several batches alone, on the
    oldest and the newest line.
    """
    from rig.jars import KAFKA_VERSION

    if server.is_ours:
        return None
    if server.has_agent:
        is_now = "several_batches" in marks and runs_every_test(server)
        return "integration" if is_now else "long"
    return "integration" if server.version == KAFKA_VERSION else "long"


def runs_every_test(server: Server) -> bool:
    """Return whether all tests run on it: on a middle line with the agent, only those of several batches."""
    from rig.agent import newest_of_each_line

    lines = newest_of_each_line()
    return not server.has_agent or server.version in (lines[0], lines[-1])


def add_option(parser: pytest.Parser) -> None:
    """Add ``--server``."""
    parser.addoption(
        "--server",
        action="append",
        metavar="NAME",
        help="run tests/conformance on this server alone: embedded, gateway, kafka-VERSION, agent-VERSION, or"
        " the HOST:PORT of a broker of one node; can be repeated (default: those of the tier). embedded/RULE "
        "breaks a rule of tests/conformance/broken.py",
    )


def chosen(config: pytest.Config) -> list[Server] | None:
    """Return the servers that ``--server`` names, or None."""
    names = config.getoption("--server")
    return [server_named(name) for name in names] if names else None


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Start a server, and stop it at the end."""
    with ExitStack() as stack:
        bootstrap = server.bootstrap or stack.enter_context(_started(server))
        newest = _newest(bootstrap) if server.has_old_requests else {}
        yield replace(server, bootstrap=bootstrap, newest=newest)


@contextmanager
def _started(server: Server) -> Iterator[str]:
    if server.has_gateway:
        with Broker(clock=server.clock) as broker, _gateway(broker) as address:
            _break(server, broker)
            yield address
    elif server.is_ours:
        with Broker(clock=server.clock, config={"shoal.multi.batch.produce": "true"}) as broker:
            _break(server, broker)
            yield broker.bootstrap
    else:
        with _real_kafka(server) as address:
            yield address


def _break(server: Server, broker: Broker) -> None:
    if server.broken:
        BROKEN[server.broken](broker)


@contextmanager
def _gateway(broker: Broker) -> Iterator[str]:
    from shoal.client.config import ClientConfig
    from shoal.gateway import Gateway, GatewaySettings

    upstream = ClientConfig.from_properties("upstream", {"bootstrap.servers": broker.bootstrap})[0]
    with Gateway(GatewaySettings("127.0.0.1", 0, upstream, allow_create_topics=True)) as gateway:
        yield str(gateway.brokers[broker.node_id])


@contextmanager
def _real_kafka(server: Server) -> Iterator[str]:
    from rig import KafkaCluster, OldKafka
    from rig.agent import agent_jar
    from rig.jars import OLD_KAFKA_VERSION

    config = {_TRANSACTION_CHECK: 500}
    if server.version == OLD_KAFKA_VERSION:
        # The rig's topics have an old message format unless they say otherwise.
        with OldKafka(config={**config, "log.message.format.version": "2.8"}) as old:
            yield old.bootstrap
        return
    jvm = {1: [f"-javaagent:{agent_jar()}"]} if server.has_agent else {}
    with KafkaCluster(version=server.version, config=config, broker_jvm=jvm) as cluster:
        yield cluster.bootstrap


def _newest(bootstrap: str) -> dict[int, int]:
    with Wire(bootstrap) as wire:
        announced = wire.call(ApiKey.API_VERSIONS, 0).api_keys
    return {each.api_key: each.max_version for each in announced}
