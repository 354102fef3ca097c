"""A JVM that does not start is reported in one sentence."""

from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.spark.launch.jvm import Abort, start_jvm

pytestmark = [
    pytest.mark.usefixtures("failed_starts"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def sentence(tmp_path: Path, *says: str) -> str:
    """Return the error for a JVM that dies with these lines."""
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text('#!/bin/sh\ncat "$SPARK_HOME/says"\nexit 1\n')
    submit.chmod(0o755)
    (tmp_path / "says").write_text("\n".join(says))
    environ = {"SPARK_HOME": str(tmp_path)}
    with pytest.raises(ConfigError) as refused, start_jvm({}, environ, tmp_path / "spark.log", Abort()):
        pass
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
