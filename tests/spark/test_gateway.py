"""A JVM that does not start is reported in one sentence."""

import os
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.spark.launch.java import Java
from shoal.spark.launch.jvm import Abort, start_jvm

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
    assert said == f"Spark's JVM does not start: No master. See {tmp_path / 'spark.log'}"


def test_unresolvable_host_name_is_reported_with_a_remedy(tmp_path: Path) -> None:
    said = sentence(
        tmp_path,
        'Exception in thread "main" java.lang.ExceptionInInitializerError',
        "Caused by: java.net.UnknownHostException: laptop: laptop: Name or service not known",
    )
    assert "the name of this machine does not resolve. Set SPARK_LOCAL_IP to the address" in said
