"""``shoal gateway`` as its user runs it: a process, its words and its exit code."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from rig import wait_until
from rig.shoal import Shoal, serve_gateway
from shoal.cli import main, make_parser
from shoal.cli.gateway import parse
from shoal.client.security import Security, TlsSettings
from shoal.errors import ConfigError
from shoal.exit_codes import EXIT_FAILED, EXIT_USAGE
from shoal.gateway import GatewaySettings
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import Wire
from tests.snapshots import Texts

PATIENCE_S = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(2) as running:
        yield running


def lines_of(process: Shoal) -> list[str]:
    """Wait for a line of the gateway and one of each broker, and return them."""
    wait_until(lambda: process.stdout.count("\n") == 3, "the addresses", PATIENCE_S)
    return process.stdout.splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_gateway_serves_until_a_signal_and_exits_with_0(
    cluster: BrokerCluster, number: signal.Signals
) -> None:
    with Shoal("gateway", "--listen", "127.0.0.1:0", "--upstream", cluster.bootstrap) as process:
        bootstrap, *brokers = (line.split()[-1] for line in lines_of(process))
        with Wire(bootstrap) as wire:
            wire.send_fetch([("a topic", 0, 0)], version=0, min_bytes=1, max_wait_ms=60_000)
            with Wire(bootstrap) as other:
                told = other.call(ApiKey.METADATA, 0, topics=[])
            assert [f"{each.host}:{each.port}" for each in told.brokers] == brokers
            process.send_signal(number)
            process.wait(PATIENCE_S)
    assert process.exit_code == 0


@contextmanager
def silent() -> Iterator[tuple[int, Callable[[psutil.Process], bool]]]:
    """Yield a port that accepts connections and never answers, and a check for a waiting client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        with ExitStack() as accepted:

            def is_asked(_: psutil.Process) -> bool:
                connected, _ = listener.accept()
                accepted.enter_context(connected)
                return bool(connected.recv(1))

            yield listener.getsockname()[1], is_asked


@contextmanager
def dropping() -> Iterator[tuple[int, Callable[[psutil.Process], bool]]]:
    """Yield a port that drops packets, like a listener with a full backlog, and the same check."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            filling = sockets.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]

        def is_tried(process: psutil.Process) -> bool:
            return any(
                each.status == psutil.CONN_SYN_SENT and each.raddr.port == port
                for each in process.net_connections("tcp")
            )

        yield port, is_tried


@pytest.mark.parametrize(("upstream", "number"), [(silent, signal.SIGTERM), (dropping, signal.SIGINT)])
def test_signal_while_waiting_for_the_cluster_exits_with_0(
    upstream: Callable[[], AbstractContextManager[tuple[int, Callable[[psutil.Process], bool]]]],
    number: signal.Signals,
    tmp_path: Path,
    texts: Texts,
) -> None:
    config = tmp_path / "upstream.properties"
    config.write_text("request.timeout.ms=3600000\n")
    with upstream() as (port, is_waited_for):
        where = f"127.0.0.1:{port}"
        arguments = ("--listen", "127.0.0.1:0", "--upstream", where, "--upstream-config", str(config))
        with Shoal("gateway", *arguments) as process:
            watched, deadline = psutil.Process(process.process_id), time.monotonic() + PATIENCE_S
            while not is_waited_for(watched):
                assert time.monotonic() < deadline
                assert process.exit_code is None
            process.send_signal(number)
            process.wait(PATIENCE_S)
    assert (process.stdout, process.exit_code) == ("", 0)
    texts(process.stderr)


def test_defaults_are_those_of_gateway_settings() -> None:
    settings = parse(make_parser().parse_args(["gateway", "--upstream", "a:1"]))
    assert settings == GatewaySettings("127.0.0.1", 9092, settings.upstream)


def test_used_port_is_one_sentence_and_exit_code_2(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        assert main(["gateway", "--listen", where, "--upstream", cluster.bootstrap]) == EXIT_USAGE
    out, err = capsys.readouterr()
    texts(err)
    assert (out, err.count("\n")) == ("", 1)


def test_unreachable_cluster_is_one_sentence_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    assert main(["gateway", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1"]) == EXIT_FAILED
    out, err = capsys.readouterr()
    texts(err)
    assert (out, err.count("\n")) == ("", 1)


# Logins of clients


def test_gateway_without_login_warns_of_the_principal_at_the_start(
    cluster: BrokerCluster, texts: Texts
) -> None:
    with serve_gateway(cluster.bootstrap) as process:
        pass
    texts(process.stderr.splitlines()[0])


@pytest.mark.parametrize(("text", "ids"), [("7", {7}), ("1-3", {1, 2, 3}), ("1-2, 1001", {1, 2, 1001})])
def test_broker_ids_are_numbers_and_ranges(tmp_path: Path, text: str, ids: set[int]) -> None:
    assert parse_broker_ids(tmp_path, text).broker_ids == ids


def parse_broker_ids(directory: Path, text: str) -> GatewaySettings:
    config = directory / "upstream.properties"
    config.write_text("bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\n")
    arguments = ["gateway", "--upstream-config", str(config), "--sasl-pass-through", f"--broker-ids={text}"]
    return parse(make_parser().parse_args(arguments))


def test_broker_ids_are_refused_if_the_cluster_names_them(texts: Texts) -> None:
    arguments = make_parser().parse_args(["gateway", "--upstream", "a:1", "--broker-ids=1"])
    with pytest.raises(ConfigError) as raised:
        parse(arguments)
    texts(str(raised.value))


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "1,,2"])
def test_invalid_broker_ids_are_refused(tmp_path: Path, text: str, texts: Texts) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_broker_ids(tmp_path, text)
    texts(str(raised.value))


def test_login_is_forwarded_without_a_login_of_the_gateway(tmp_path: Path) -> None:
    config = tmp_path / "upstream.properties"
    config.write_text("bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\n")
    arguments = ["gateway", "--upstream-config", str(config), "--sasl-pass-through"]
    settings = parse(make_parser().parse_args(arguments))
    assert not settings.may_ask_cluster
    assert settings.client_security is not None
    assert settings.client_security == Security(TlsSettings())


@pytest.mark.parametrize(
    ("protocol", "options", "warns"),
    [
        ("SASL_SSL", (), True),
        ("SASL_SSL", ("--listen=0.0.0.0:9092", "--allow-any-address"), True),
        ("SASL_PLAINTEXT", (), True),
        ("SASL_SSL", ("--tls-certificate=a.pem", "--tls-key=b.pem"), False),
    ],
)
def test_forwarded_login_without_tls_warns(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    protocol: str,
    options: tuple[str, ...],
    warns: bool,
    texts: Texts,
) -> None:
    config = tmp_path / "upstream.properties"
    config.write_text(f"bootstrap.servers=a:1\nsecurity.protocol={protocol}\n")
    parse(
        make_parser().parse_args(
            ["gateway", "--upstream-config", str(config), "--sasl-pass-through", *options]
        )
    )
    told = capsys.readouterr().err
    texts(told)
    assert ("--sasl-pass-through" in told) == warns
    assert ("SASL_SSL" in told) == (warns and protocol == "SASL_SSL")


def test_gateway_s_login_is_not_used_for_forwarded_logins(tmp_path: Path) -> None:
    config = tmp_path / "upstream.properties"
    config.write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="gateway" password="secret";\n'
    )
    config.chmod(0o600)
    arguments = ["gateway", "--upstream-config", str(config), "--sasl-pass-through"]
    settings = parse(make_parser().parse_args(arguments))
    assert settings.may_ask_cluster
    assert settings.client_security is not None
    assert settings.client_security == Security()


def test_forwarded_login_to_a_listener_without_sasl_is_refused(texts: Texts) -> None:
    arguments = make_parser().parse_args(["gateway", "--upstream", "a:1", "--sasl-pass-through"])
    with pytest.raises(ConfigError) as raised:
        parse(arguments)
    texts(str(raised.value))


def test_bound_of_all_requests_has_room_for_the_largest(texts: Texts) -> None:
    arguments = ["gateway", "--upstream", "a:1"]
    settings = parse(make_parser().parse_args([*arguments, "--max-bytes-in-flight=16m"]))
    assert settings.bytes_in_flight == settings.largest_request_bytes
    with pytest.raises(ConfigError) as raised:
        parse(make_parser().parse_args([*arguments, "--max-bytes-in-flight=15m"]))
    texts(str(raised.value))
