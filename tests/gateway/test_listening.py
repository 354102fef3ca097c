"""Addresses to listen at, clients that may connect, and limits of connections."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rig.authority import Authority
from rig.shoal import serve_gateway
from shoal.errors import ConfigError
from shoal.gateway import Gateway, GatewaySettings, TlsFiles
from shoal.gateway.converting import CORES
from shoal.protocol.apis import ApiKey
from shoal_broker import BrokerCluster
from tests.broker.wire import PATIENCE_S, Wire
from tests.gateway.behind import Behind, append, free_ports, gateway_before, read_all, upstream, wait_until
from tests.world.batches import batch, message

Connect = Callable[[str], Wire]


# Many connections


def test_client_beyond_the_limit_is_refused(
    cluster: BrokerCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with gateway_before(cluster, most_connections=3) as behind:
        wires = [connect(behind.address()) for _ in range(3)]
        for wire in wires:
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        for _ in range(3):
            assert connect(behind.address()).receive_frame() is None
        assert caplog.text.count("refused: 3 are open") == 1
        wires.pop().close()
        wait_until(lambda: behind.gateway.connections == 2, "the one that left is counted")
        assert connect(behind.address()).call(ApiKey.METADATA, 1, topics=[]).brokers


def test_connections_of_one_address_have_their_own_limit(
    cluster: BrokerCluster, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    with gateway_before(cluster, most_connections_per_address=2) as behind:
        host, port = behind.address().rsplit(":", 1)
        served = [connect(f"{host}:{port}") for _ in range(2)]
        for wire in served:
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        assert connect(f"{host}:{port}").receive_frame() is None
        assert re.search(r"connection.*127\.0\.0\.1.*2", caplog.text)
        with socket.create_connection((host, int(port)), PATIENCE_S, ("127.0.0.2", 0)) as other:
            other.sendall(struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1))
            assert other.recv(8)[4:] == struct.pack(">i", 7)
        served.pop().close()
        wait_until(lambda: behind.gateway.connections == 1, "the one that left is counted")
        assert connect(f"{host}:{port}").call(ApiKey.METADATA, 1, topics=[]).brokers


def test_silent_connection_makes_room_for_a_client(cluster: BrokerCluster, connect: Connect) -> None:
    with gateway_before(cluster, most_connections=2) as behind:
        silent = [connect(behind.address()) for _ in range(2)]
        wait_until(lambda: behind.gateway.connections == 2, "both are counted")
        clients = [connect(behind.address()) for _ in range(2)]
        for wire in clients:
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        for wire in silent:
            assert wire.receive_frame() is None
        assert connect(behind.address()).receive_frame() is None


def test_gateway_holds_a_socket_and_a_thread_for_each_slot(cluster: BrokerCluster, connect: Connect) -> None:
    """Under 500 connects, in a process of its own: those of this process are the clients'."""
    most, is_over = 10, threading.Event()
    with serve_gateway(cluster.bootstrap, "--max-connections", str(most)) as gateway:
        process = psutil.Process(gateway.process_id)
        sockets, threads = process.num_fds(), process.num_threads()
        seen = [(sockets, threads)]

        def look() -> None:
            while not is_over.wait(0.0005):
                seen.append((process.num_fds(), process.num_threads()))

        looking = threading.Thread(target=look)
        looking.start()
        try:
            for _ in range(500):
                connect(gateway.address)
            full = (sockets + most, threads + most)
            wait_until(lambda: seen[-1] == full, "the last ones are served")
        finally:
            is_over.set()
            looking.join()
    # A connection that was accepted may wait for a slot. It may get that of a silent one, whose thread ends.
    assert max(of_sockets for of_sockets, _ in seen) <= sockets + most + 1
    assert max(of_threads for _, of_threads in seen) <= threads + most + 1


# Addresses


def test_address_beyond_loopback_is_refused_by_default(cluster: BrokerCluster) -> None:
    for host in ("0.0.0.0", "192.0.2.1"):
        with pytest.raises(ConfigError, match=r"machines.*connect"):
            Gateway(GatewaySettings(host, 0, upstream(cluster)))


def test_unspecified_address_requires_an_advertised_host(cluster: BrokerCluster, connect: Connect) -> None:
    with pytest.raises(ConfigError, match=r"--advertise.*HOST"):
        Gateway(GatewaySettings("0.0.0.0", 0, upstream(cluster), allow_any_address=True))
    settings = GatewaySettings(
        "0.0.0.0", 0, upstream(cluster), allow_any_address=True, advertised_host="localhost"
    )
    with Gateway(settings) as running:
        assert running.bootstrap.host == "localhost"
        answer = connect(str(running.bootstrap)).call(ApiKey.METADATA, 1, topics=[])
        assert {each.host for each in answer.brokers} == {"localhost"}


def test_used_port_is_named(cluster: BrokerCluster) -> None:
    with socket.socket() as taken:
        port = 2 + free_ports(3)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        threads = psutil.Process().num_threads()
        with pytest.raises(ConfigError, match=rf"--listen.*127.0.0.1:{port}"):
            Gateway(GatewaySettings("127.0.0.1", port, upstream(cluster))).start()
        with pytest.raises(ConfigError, match=rf"127.0.0.1:{port}.*1"):
            Gateway(GatewaySettings("127.0.0.1", port - 2, upstream(cluster))).start()
        wait_until(lambda: psutil.Process().num_threads() <= threads, "threads are left")


def test_broker_with_a_port_beyond_65535_is_named(cluster: BrokerCluster) -> None:
    with pytest.raises(ConfigError, match=r"2.*65536.*65532"):
        Gateway(GatewaySettings("127.0.0.1", 65533, upstream(cluster))).start()


# TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def files(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    directory = tmp_path_factory.mktemp("tls")
    return written(authority, directory, "gateway")


def written(authority: Authority, directory: Path, name: str) -> TlsFiles:
    identity = authority.issue(name, "127.0.0.1", "localhost")
    certificates, key = directory / f"{name}.pem", directory / f"{name}-key.pem"
    certificates.write_text(identity.chain_pem)
    key.write_text(identity.key_pem())
    return TlsFiles(certificates, key)


@pytest.fixture
def encrypted(cluster: BrokerCluster, files: TlsFiles) -> Iterator[Behind]:
    with gateway_before(cluster, tls=files) as behind:
        yield behind


def trusting(authority: Authority, shown: TlsFiles | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if shown is not None:
        context.load_cert_chain(shown.certificates, shown.private_key)
    return context


class TlsWire(Wire):
    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        super().__init__(address)
        try:
            self._tls = self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        except BaseException:
            self.socket.close()
            raise

    def say_goodbye(self) -> None:
        """End TLS, and wait for no answer to that."""
        self.socket.settimeout(0)
        with contextlib.suppress(OSError):
            self._tls.unwrap()


def test_old_and_new_clients_are_served_by_tls(encrypted: Behind, authority: Authority) -> None:
    topic = encrypted.new_topic()
    append(encrypted, topic, *[batch([b"x" * 100_000])] * 5)
    with TlsWire(encrypted.address(topic), trusting(authority)) as wire:
        assert len(wire.call(ApiKey.METADATA, 0, topics=[]).brokers) == 3
        assert len(read_all(wire, topic, 1, count=5)) == 5
        assert len(wire.fetch(topic, version=12).record_set) > 100_000
        # More than a record of TLS, and the next request right behind it.
        for _ in range(2):
            wire.send(ApiKey.PRODUCE, 9, **wire.produce_fields([(topic, 0, batch([b"y" * 100_000]))]))
        for _ in range(2):
            assert wire.receive_frame() is not None
        assert wire.end_offset(topic) == 7


def test_requests_before_a_tls_close_are_served(
    encrypted: Behind, authority: Authority, connect: Connect
) -> None:
    topic = encrypted.new_topic()
    leader = encrypted.cluster.node(encrypted.cluster.leader_of(topic))
    leader.faults.add(ApiKey.PRODUCE, topic=topic, delay_s=0.3)
    with TlsWire(encrypted.address(topic), trusting(authority)) as wire:
        for _ in range(3):
            wire.send(ApiKey.PRODUCE, 0, **wire.produce_fields([(topic, 0, message(0))], acks=0))
        wire.say_goodbye()
    direct = connect(encrypted.direct(topic))
    wait_until(lambda: direct.end_offset(topic) == 3, "not all that was sent is written")
    with TlsWire(encrypted.address(topic), trusting(authority)) as wire:
        wire.send_fetch([(topic, 0, 3)], version=1, min_bytes=1, max_wait_ms=2**31 - 1)
        wait_until(lambda: encrypted.gateway.connections == 1, "the client is not served")
        wire.say_goodbye()
    wait_until(lambda: encrypted.gateway.connections == 0, "its thread waits for the broker")


def test_request_of_a_client_that_hung_up_is_served_after_others(behind: Behind, connect: Connect) -> None:
    topic, looks = behind.new_topic(), list[int]()

    def wait_beside() -> None:
        with CORES.share("beside", check=lambda: looks.append(1)):
            pass

    beside = threading.Thread(target=wait_beside)
    with contextlib.ExitStack() as cores:
        for _ in range(os.cpu_count() or 1):
            cores.enter_context(CORES.share("others"))
        with Wire(behind.address(topic)) as wire:
            wire.send(ApiKey.PRODUCE, 0, **wire.produce_fields([(topic, 0, message(0))], acks=0))
        wait_until(lambda: CORES.waiting == 1, "it does not wait for a core")
        beside.start()
        wait_until(lambda: len(looks) >= 3, "nobody looks at the clients that wait")
    beside.join()
    direct = connect(behind.direct(topic))
    wait_until(lambda: direct.end_offset(topic) == 1, "the record is lost")


def test_client_without_tls_is_disconnected(encrypted: Behind, authority: Authority) -> None:
    with Wire(encrypted.address()) as wire:
        wire.send(ApiKey.METADATA, 1, topics=[])
        frame = None
        with contextlib.suppress(OSError):
            frame = wire.socket.recv(100)
        assert frame is None or not frame.startswith(b"\0\0")  # a TLS alert, or nothing
    with TlsWire(encrypted.address(), trusting(authority)) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def test_silent_connection_does_not_delay_tls_of_others(encrypted: Behind, authority: Authority) -> None:
    with Wire(encrypted.address()), TlsWire(encrypted.address(), trusting(authority)) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def test_client_certificate_can_be_required(
    cluster: BrokerCluster, authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_text(authority.pem)
    mutual = TlsFiles(files.certificates, files.private_key, authorities)
    client = written(authority, tmp_path, "client")
    with gateway_before(cluster, tls=mutual) as behind:
        with TlsWire(behind.address(), trusting(authority, client)) as wire:
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        with pytest.raises((OSError, AssertionError)), TlsWire(behind.address(), trusting(authority)) as wire:
            wire.call(ApiKey.METADATA, 1, topics=[])


def test_connections_without_certificate_yield_to_clients_with_one(
    cluster: BrokerCluster, authority: Authority, files: TlsFiles, tmp_path: Path, connect: Connect
) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_text(authority.pem)
    mutual = TlsFiles(files.certificates, files.private_key, authorities)
    client = written(authority, tmp_path, "client")
    with gateway_before(cluster, tls=mutual, most_connections=2) as behind:
        strangers = [connect(behind.address()) for _ in range(2)]
        wait_until(lambda: behind.gateway.connections == 2, "both are counted")
        with TlsWire(behind.address(), trusting(authority, client)) as wire:
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
            strangers += [connect(behind.address()) for _ in range(3)]
            assert strangers[0].receive_frame() is None
            assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers


def test_stop_closes_tls_connections(encrypted: Behind, authority: Authority) -> None:
    with TlsWire(encrypted.address(), trusting(authority)) as wire:
        assert wire.call(ApiKey.METADATA, 1, topics=[]).brokers
        encrypted.gateway.stop()
        assert encrypted.gateway.connections == 0
        with pytest.raises((OSError, AssertionError)):
            wire.call(ApiKey.METADATA, 1, topics=[])


def test_unusable_certificate_is_refused_with_its_problem(
    cluster: BrokerCluster, authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    other = written(authority, tmp_path, "other")
    encrypted = tmp_path / "encrypted.pem"
    encrypted.write_text(authority.issue("encrypted").key_pem("secret"))
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("nothing")
    for wrong, sentence in (
        (TlsFiles(tmp_path / "missing.pem", files.private_key), "missing.pem: there is no such file"),
        (TlsFiles(files.certificates, other.private_key), "do not belong together"),
        (TlsFiles(files.certificates, encrypted), "the key is encrypted"),
        (TlsFiles(files.certificates, files.private_key, nothing), "nothing.pem: no certificates in PEM"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            Gateway(GatewaySettings("127.0.0.1", 0, upstream(cluster), tls=wrong))
