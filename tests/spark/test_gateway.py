"""A JVM that does not start is reported in one sentence, and the end of one that did not at all."""

import logging
import os
import socketserver
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.spark.launch.java import Java
from shoal.spark.launch.jvm import Abort, connect_gateway, start_jvm

# Answers as Spark's launcher with the command of a JVM, itself; as that JVM it dies as Spark does.
JAVA = """#!/bin/sh
case "$*" in
*launcher.Main*)
  printf '\\n\\0%s\\0-cp\\0%s\\0' "$0" "$SPARK_HOME/jars/a.jar"
  printf 'org.apache.spark.deploy.SparkSubmit\\0' ;;
*) cat "$SPARK_HOME/says"; exit 1 ;;
esac
"""


def sentence(tmp_path: Path, *says: str) -> str:
    """Return the error for a JVM that dies with these lines."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "jars").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text(JAVA)
    java.chmod(0o755)
    (tmp_path / "jars" / "spark-launcher_2.13.jar").touch()
    (tmp_path / "jars" / "a.jar").touch()
    (tmp_path / "says").write_text("\n".join(says))
    environ = {**os.environ, "SPARK_HOME": str(tmp_path)}
    with pytest.raises(ConfigError) as refused:
        start_jvm(Java(tmp_path, "17", "17"), {}, environ, tmp_path / "spark.log", tmp_path, Abort())
    return str(refused.value)


def test_first_error_line_of_the_log_is_reported(tmp_path: Path) -> None:
    said = sentence(
        tmp_path, "Setting log level", 'Exception in thread "main" a.b.SparkException: No master.'
    )
    assert all(each in said for each in ("Spark's", "JVM", f"{tmp_path / 'spark.log'}"))


def test_unresolvable_host_name_is_reported_with_a_remedy(tmp_path: Path) -> None:
    said = sentence(
        tmp_path,
        'Exception in thread "main" java.lang.ExceptionInInitializerError',
        "Caused by: java.net.UnknownHostException: laptop: laptop: Name or service not known",
    )
    assert "SPARK_LOCAL_IP" in said


class EndingJvm(socketserver.StreamRequestHandler):
    """Answers each command of Py4J with success, until it gets one that it does not live to answer."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            if line == b"last\n":
                return
            if line in (b"e\n", b"secret\n"):  # the end of a command, and of the login
                self.wfile.write(b"!yv\n")


@pytest.fixture
def ending_jvm() -> Iterator[int]:
    """The port of a server that stands for a JVM."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), EndingJvm) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_command_that_the_end_of_the_jvm_interrupts_is_not_logged(
    ending_jvm: int, caplog: pytest.LogCaptureFixture
) -> None:
    secret = b"secret"
    with subprocess.Popen(["true"]) as process:
        gateway = connect_gateway(struct.pack(">ii", ending_jvm, len(secret)) + secret, process)
    with caplog.at_level(logging.WARNING):
        assert gateway._gateway_client.send_command("last\n", retry=False) == "x"
    assert caplog.records == []
