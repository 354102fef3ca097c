"""Real Kafka listeners that require TLS, certificates, passwords and ACLs."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import signal
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import psutil
import pyspark
import pytest

from rig.cluster import java_properties
from rig.load import create_topic, load_plain
from rig.locked import PASSWORDS, SHORT_SESSION_MS, LockedKafka, jaas
from rig.ports import free_port
from rig.read import digest_topic
from rig.shoal import Shoal
from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.errors import AccessRefused, Disconnected
from shoal.mirroring.model.progress import Phase
from shoal.protocol.apis import ApiKey
from tests.integration.raw_session import send_and_read
from tests.integration.shared_spark import shoal

#: Longer than the test's own timeouts, on a busy machine.
pytestmark = pytest.mark.timeout(900)

KEY_PASSWORD, STORE_PASSWORD = "key-secret-51aa", "store-secret-c0de"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def kafka(locked_cluster: LockedKafka) -> LockedKafka:
    return locked_cluster


def trust(kafka: LockedKafka) -> dict[str, str]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(kafka.directory / "ca.pem"),
    }


def login(mechanism: str, user: str = "alice", password: str | None = None) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas(mechanism, user, password),
    }


def both(kafka: LockedKafka, mechanism: str, user: str = "alice") -> dict[str, str]:
    return {**trust(kafka), **login(mechanism, user), "security.protocol": "SASL_SSL"}


def own_certificate(kafka: LockedKafka) -> dict[str, str]:
    store = kafka.alice.write_pkcs12(kafka.directory / "alice.p12", STORE_PASSWORD)
    return {"ssl.keystore.location": str(store), "ssl.keystore.password": STORE_PASSWORD}


def client(
    kafka: LockedKafka, listener: str, properties: Mapping[str, str], name: str = "source"
) -> ClientConfig:
    servers = kafka.cluster.bootstrap if listener == "PLAINTEXT" else kafka.cluster.listener(listener)
    return ClientConfig.from_properties(name, {"bootstrap.servers": servers, **properties})[0]


def asked(kafka: LockedKafka, listener: str, properties: Mapping[str, str]) -> int:
    with Cluster(client(kafka, listener, properties)) as cluster:
        return len(cluster.refresh().brokers)


def load(kafka: LockedKafka, topic: str, records: int, *, create: bool = True) -> None:
    """Load batches of a megabyte into the one partition of a topic."""
    bootstrap = kafka.cluster.bootstrap
    load_plain(bootstrap, topic, "none", 900, records * 1000, partitions=1, create=create)


def assert_copied(kafka: LockedKafka, topic: str) -> None:
    source, copy = (digest_topic(kafka.cluster.bootstrap, each) for each in (topic, f"copy.{topic}"))
    assert source == copy
    assert source[0].count == 4_000


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_versions_of_tls_can_be_chosen(kafka: LockedKafka, versions: str) -> None:
    assert asked(kafka, "TLS", {**trust(kafka), "ssl.enabled.protocols": versions}) == 1


def test_encrypted_pem_key_is_accepted(kafka: LockedKafka) -> None:
    store = kafka.alice.write_pem(kafka.directory / "alice.pem", KEY_PASSWORD)
    shown = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.key.password": KEY_PASSWORD,
    }
    assert asked(kafka, "MUTUAL", {**trust(kafka), **shown}) == 1


def test_pem_stores_in_properties_are_accepted(kafka: LockedKafka) -> None:
    inline = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": kafka.authority.pem,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": kafka.alice.key_pem(),
        "ssl.keystore.certificate.chain": kafka.alice.chain_pem,
    }
    assert asked(kafka, "MUTUAL", inline) == 1


def test_trust_store_of_keytool_is_read_with_any_name(kafka: LockedKafka) -> None:
    store = kafka.authority.write_trust_store(kafka.directory / "trust.jks", STORE_PASSWORD)
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": STORE_PASSWORD,
    }
    assert asked(kafka, "TLS", properties) == 1


def test_disabled_host_name_check_accepts_a_wrong_name(kafka: LockedKafka) -> None:
    assert asked(kafka, "MISNAMED", {**trust(kafka), "ssl.endpoint.identification.algorithm": ""}) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
def test_wrong_password_is_one_sentence(kafka: LockedKafka, listener: str, mechanism: str) -> None:
    wrong = login(mechanism, password="wrong-secret-77")
    properties = wrong if listener == "SASL" else {**trust(kafka), **wrong, "security.protocol": "SASL_SSL"}
    with pytest.raises(AccessRefused) as refused:
        asked(kafka, listener, properties)
    assert all(
        each in str(refused.value)
        for each in (f"{kafka.cluster.listener(listener)}", "'alice'", str(mechanism), "sasl.jaas.config")
    )


REFUSALS = {
    "untrusted": ("TLS", {"ssl.truststore.location": ""}, "is not trusted .*ssl.truststore.location"),
    "another-name": ("MISNAMED", {}, "does not name 127.0.0.1. .*ssl.endpoint.identification.algorithm"),
    "expired": ("EXPIRED", {}, "has expired. Renew it"),
    "no-certificate": ("MUTUAL", {}, "refuses our certificate, or the lack of one .*ssl.keystore.location"),
    "no-certificate-1.2": (
        "MUTUAL",
        {"ssl.enabled.protocols": "TLSv1.2"},
        "refuses our certificate, or the lack of one .*ssl.keystore.location",
    ),
    "plaintext-at-tls": ("TLS", {"security.protocol": "PLAINTEXT"}, "requires TLS. Set security.protocol"),
    "sasl-at-tls": (
        "TLS",
        {**login("PLAIN"), "security.protocol": "SASL_SSL"},
        "has no SASL. Set security.protocol=SSL",
    ),
    "sasl-at-plaintext": ("PLAINTEXT", login("PLAIN"), "has no SASL. Set security.protocol=PLAINTEXT"),
}


@pytest.mark.parametrize(("listener", "changed", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_incompatible_security_settings_are_named(
    kafka: LockedKafka, listener: str, changed: dict[str, str], sentence: str
) -> None:
    with pytest.raises(AccessRefused, match=sentence) as refused:
        asked(kafka, listener, {**trust(kafka), **changed})
    assert "\n" not in str(refused.value)


HANG_UPS = {
    "plaintext-at-sasl": ("SASL", {"security.protocol": "PLAINTEXT"}, "set security.protocol=SASL_PLAINTEXT"),
    "tls-at-sasl-and-tls": ("SASLTLS", {}, "set security.protocol=SASL_SSL"),
    "tls-at-plaintext": ("PLAINTEXT", {}, "instead of a TLS handshake. Check security.protocol"),
}


@pytest.mark.parametrize(("listener", "changed", "sentence"), HANG_UPS.values(), ids=HANG_UPS)
def test_broker_that_hangs_up_suggests_another_protocol(
    kafka: LockedKafka, listener: str, changed: dict[str, str], sentence: str
) -> None:
    with pytest.raises(Disconnected, match=sentence):
        asked(kafka, listener, {**trust(kafka), **changed})


def test_login_is_renewed_before_its_session_ends(kafka: LockedKafka) -> None:
    with Cluster(client(kafka, "SHORT", login("PLAIN"))) as cluster:
        connection = cluster.any_connection()
        end = time.monotonic() + 2 * SHORT_SESSION_MS / 1000
        metadata = {"topics": [], "allow_auto_topic_creation": False}
        while time.monotonic() < end:
            assert len(connection.request(ApiKey.METADATA, **metadata).brokers) == 1
        assert not connection.closed


SECRETS = [*PASSWORDS.values(), KEY_PASSWORD, STORE_PASSWORD, "PRIVATE KEY"]


def properties_file(path: Path, servers: str, properties: Mapping[str, str]) -> str:
    path.write_text(java_properties({"bootstrap.servers": servers, **properties}))
    path.chmod(0o600)
    return str(path)


def test_command_reports_a_refusal_in_one_sentence(kafka: LockedKafka, topic: str, tmp_path: Path) -> None:
    load(kafka, topic, 100)
    servers = kafka.cluster.listener("SASLTLS")

    def mirror(destination: Mapping[str, str]) -> tuple[int, str]:
        source = properties_file(tmp_path / "source.properties", servers, both(kafka, "PLAIN"))
        to = properties_file(tmp_path / "to.properties", servers, destination)
        args = ["--topics", topic, "--rename", r"(.*)=new.\1", "--once"]
        done = shoal("mirror", "--from-config", source, "--to-config", to, *args, state=tmp_path)
        assert done.stdout == ""
        *phases, sentence = done.stderr.splitlines()
        assert set(phases) <= {f"shoal: {Phase.CHECKING.value}"}
        return done.returncode, sentence

    code, sentence = mirror({**both(kafka, "PLAIN"), "sasl.jaas.config": jaas("PLAIN", "alice", "wrong-77")})
    assert code == 2
    assert re.search(r"destination.*broker", sentence)
    assert "wrong-77" not in sentence
    code, sentence = mirror({**both(kafka, "PLAIN"), "sasl.jaas.config": "PlainLoginModule wrong-77"})
    assert code == 2
    assert "sasl.jaas.config" in sentence
    assert "wrong-77" not in sentence
    code, sentence = mirror(both(kafka, "PLAIN", "bob"))
    assert code in (1, 2)
    assert re.search(r"DESCRIBE.*WRITE", sentence)


def test_mirror_between_locked_clusters_reveals_no_secret(
    kafka: LockedKafka, topic: str, tmp_path: Path
) -> None:
    load(kafka, topic, 4_000)
    servers = kafka.cluster.listener("SASLTLS")
    source = properties_file(tmp_path / "source.properties", servers, both(kafka, "SCRAM-SHA-512"))
    destination = properties_file(
        tmp_path / "destination.properties", servers, {**both(kafka, "PLAIN"), **own_certificate(kafka)}
    )
    args = [
        "--from-config",
        source,
        "--to-config",
        destination,
        "--topics",
        topic,
        "--rename",
        r"(.*)=copy.\1",
    ]
    state, events, checkpoint = tmp_path / "state", tmp_path / "events", tmp_path / "checkpoint"
    events.mkdir()
    logged = ["--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}"]
    logged += ["--conf", "spark.eventLog.compress=false"]

    once = shoal("mirror", *args, *logged, "--once", "--json", "--checkpoint", str(checkpoint), state=state)
    assert once.returncode == 0, once.stderr
    assert json.loads(once.stdout.splitlines()[-1])["records"] == 4_000
    assert_copied(kafka, topic)

    verified = shoal("verify", *args, state=state)
    assert verified.returncode == 0, verified.stdout + verified.stderr

    port = free_port()
    ui = ["--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}"]
    executors = ["--master", "local-cluster[2,1,1024]"]
    # Spark writes the logs of such executors into its own directory, which keeps those of other runs.
    work = Path(pyspark.__file__).parent / "work"
    earlier = set(work.glob("app-*"))
    seen = {"--once": once.stdout + once.stderr, "verify": verified.stdout + verified.stderr}
    with Shoal(
        "mirror", "--json", *args, *logged, *ui, *executors, "--checkpoint", str(checkpoint), state=state
    ) as mirror:
        load(kafka, topic, 1_000, create=False)
        last = mirror.wait_for(lambda line: line.get("records", 0) >= 1_000, timeout_s=400)
        for page in ("environment", "SQL", "jobs", "executors", "StreamingQuery"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}/", timeout=30) as answer:
                seen[page] = answer.read().decode()
        applications = f"http://127.0.0.1:{port}/api/v1/applications"
        with urllib.request.urlopen(applications, timeout=30) as answer:
            name = json.load(answer)[0]["id"]
        for page in ("environment", "sql?details=true&planDescription=true"):
            with urllib.request.urlopen(f"{applications}/{name}/{page}", timeout=30) as answer:
                seen[f"api {page}"] = answer.read().decode()
        for process in psutil.Process(mirror.process_id).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # workers start and end
                seen[f"arguments of {process.pid}"] = " ".join(process.cmdline())
                seen[f"environment of {process.pid}"] = str(process.environ())
        mirror.send_signal(signal.SIGTERM)
        seen["stdout"] = json.dumps([last, mirror.wait()])
        assert mirror.exit_code == 0, mirror.stderr
        seen["stderr"] = mirror.stderr
    roots = state, events, checkpoint, *(set(work.glob("app-*")) - earlier)
    files = [each for root in roots for each in root.rglob("*") if each.is_file()]
    seen |= {str(each): each.read_bytes().decode("latin-1") for each in files if each.suffix != ".jsa"}

    # The search covers Spark's environment page, and the executors.
    assert sum("CoarseGrainedExecutorBackend" in text for text in seen.values()) >= 2
    assert any("/work/app-" in name and name.endswith("/stderr") for name in seen)
    assert "spark.ui.port" in seen["environment"]
    assert any("SparkListenerJobStart" in text for name, text in seen.items() if str(events) in name)
    assert any("spark.log" in name for name in seen)
    assert any(str(checkpoint / "spark") in name for name in seen)
    assert sum(name.startswith("arguments") for name in seen) >= 2
    found = {name: secret for name, text in seen.items() for secret in SECRETS if secret in text}
    assert found == {}


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        ("TLS", ""),
        ("MUTUAL", ""),
        *itertools.product(("SASL", "SASLTLS"), MECHANISMS),
        pytest.param("SHORT", "PLAIN", marks=pytest.mark.long),
    ],
)
def test_raw_client_writes_and_reads_with_each_login(
    kafka: LockedKafka, listener: str, mechanism: str, topic: str
) -> None:
    create_topic(kafka.cluster.bootstrap, topic, partitions=2)
    properties = trust(kafka) if not mechanism else login(mechanism)
    if listener == "MUTUAL":
        properties |= own_certificate(kafka)
    if listener == "SASLTLS":
        properties = both(kafka, mechanism)
    # Long enough for several renewals of the logins, on connections with requests in flight.
    seconds = 3 * SHORT_SESSION_MS / 1000 if listener == "SHORT" else 0
    send_and_read({"bootstrap.servers": kafka.cluster.listener(listener), **properties}, topic, seconds)
