"""Authentication of Spark's connections: another user of the machine reads nothing from its ports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from shoal.client.config import ClientConfig
from shoal.client.security import PasswordLogin, Security
from shoal.errors import ConfigError
from shoal.net.address import Address
from shoal.spark.launch.session import authentication_settings
from shoal.spark.trust import key_for_tasks
from tests.spark.sessions import spark_session

NOBODY = 65534

# Spark's transport protocol, as far as a block manager needs it to hand out a block: each frame is its
# length, a type, and a message. An RpcResponse (4) answers an RpcRequest (3) with OpenBlocks (0). It has the
# number of the stream from which a ChunkFetchRequest (0) reads the block, as a ChunkFetchSuccess (1).
THIEF = """
import encodings.idna, os, socket, struct, sys
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)

def text(words):
    return struct.pack(">i", len(words)) + words.encode()

def ask(kind, message):
    connection.sendall(struct.pack(">qb", 9 + len(message), kind) + message)
    length, kind = struct.unpack(">qb", received.read(9))
    return kind, received.read(length - 9)

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10) as connection:
    received = connection.makefile("rb")
    body = b"\\0" + text("local") + text("driver") + struct.pack(">i", 1) + text(sys.argv[2])
    kind, answer = ask(3, struct.pack(">qi", 1, len(body)) + body)
    if kind == 4:
        stream, = struct.unpack_from(">q", answer, 8 + 4 + 1)
        kind, answer = ask(0, struct.pack(">qi", stream, 0))
    print(os.getuid(), kind, len(answer))
"""


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    session = spark_session("local[1]", {}, tmp_path / "spark.log", tmp_path)
    yield session
    session.stop()


def test_blocks_of_a_local_spark_are_refused_to_another_user(spark: SparkSession) -> None:
    block = f"broadcast_{spark.sparkContext.broadcast(b'task')._jbroadcast.id()}_piece0"
    (manager,) = spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()
    thief = subprocess.run(
        [sys.executable, "-c", THIEF, str(manager.port()), block],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    uid = NOBODY if os.getuid() == 0 else os.getuid()
    # An RpcFailure (5), and no ChunkFetchSuccess.
    assert thief.stdout.startswith(f"{uid} 5 "), thief


LOCKED = ClientConfig("source", (Address("a", 1),), security=Security(login=PasswordLogin("PLAIN", "a", "b")))


def key_of(context: Any, directory: Path, *, clusters: Sequence[ClientConfig] = (LOCKED,)) -> str | Path:
    with key_for_tasks(context, clusters, directory) as key:
        return key


AUTHENTICATED = {"spark.authenticate": "true"}
ALLOWED = {"spark.shoal.allowUnauthenticated": "true"}
CLUSTER = "spark://host:7077"


def context_of(master: str, conf: dict[str, str]) -> Any:
    settings = SparkConf(loadDefaults=False, _jvm=None).setAll(list(conf.items()))
    return SimpleNamespace(master=master, getConf=lambda: settings)


@pytest.mark.parametrize(
    ("master", "conf", "missing"),
    [
        ("local[2,4]", {}, "spark.authenticate"),
        ("local[2,4]", {"spark.authenticate": "false"}, "spark.authenticate"),
        (CLUSTER, {}, "spark.authenticate"),
        (CLUSTER, {"spark.ssl.rpc.enabled": "true"}, "spark.authenticate"),
        (CLUSTER, AUTHENTICATED, "spark.network.crypto.enabled"),
    ],
)
def test_spark_without_authentication_or_encryption_is_refused_credentials(
    master: str, conf: dict[str, str], missing: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"^{missing}.*'false'.*spark\.shoal\.allowUnauthenticated=true"):
        key_of(context_of(master, conf), tmp_path)
    assert key_of(context_of(master, {**conf, **ALLOWED}), tmp_path)
    assert key_of(context_of(master, conf), tmp_path, clusters=[]) == ""


@pytest.mark.parametrize(
    ("master", "conf"),
    [
        ("local[2,4]", AUTHENTICATED),
        (CLUSTER, {**AUTHENTICATED, "spark.network.crypto.enabled": "true"}),
        (CLUSTER, {"spark.authenticate": " TRUE", "spark.ssl.rpc.enabled": "true"}),
    ],
)
def test_spark_with_authentication_and_encryption_receives_credentials(
    master: str, conf: dict[str, str], tmp_path: Path
) -> None:
    assert key_of(context_of(master, conf), tmp_path)


def test_local_masters_have_authentication_settings() -> None:
    local = authentication_settings({"spark.master": "local[*,4]"})
    assert local == {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}
    first, second = (authentication_settings({"spark.master": "local-cluster[2,1,1024]"}) for _ in range(2))
    assert first["spark.authenticate.secret"] != second["spark.authenticate.secret"]
    off = authentication_settings({"spark.master": "local[1]", "spark.authenticate": "false"})
    assert off == {"spark.network.crypto.enabled": "false"}
