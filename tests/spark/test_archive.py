"""Class data archives: their key, and their creation by one process after the JVM has ended."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.spark.launch.archive import ClassArchive

BUILD = "17.0.15+6"
TIMEOUT_S = 60


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "a.jar"
    path.write_bytes(b"classes")
    return path


def archive_of(
    class_path: str, *, build: str = BUILD, memory: str = "-Xmx512m", directory: Path
) -> ClassArchive:
    archive = ClassArchive.of(["/bin/java", "-cp", class_path, memory], build, directory)
    assert archive is not None
    return archive


def test_archive_of_the_same_jvm_is_the_same(jar: Path, tmp_path: Path) -> None:
    assert archive_of(str(jar), directory=tmp_path) == archive_of(str(jar), directory=tmp_path)


def test_key_of_an_archive_has_each_input(jar: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.jar"
    other.write_bytes(b"classes")
    files = {
        archive_of(str(jar), directory=tmp_path).file,
        archive_of(str(jar), directory=tmp_path, build="17.0.16+8").file,
        archive_of(str(jar), directory=tmp_path, memory="-Xmx40g").file,
        archive_of(f"{jar}:{other}", directory=tmp_path).file,
    }
    jar.write_bytes(b"more classes")
    files.add(archive_of(str(jar), directory=tmp_path).file)
    os.utime(jar, ns=(1, 1))
    files.add(archive_of(str(jar), directory=tmp_path).file)
    assert len(files) == 6


def test_class_path_with_a_directory_has_no_archive(jar: Path, tmp_path: Path) -> None:
    assert ClassArchive.of(["/bin/java", "-cp", f"{tmp_path}:{jar}"], BUILD, tmp_path) is None


def test_existing_archive_is_used_and_a_bad_one_removed(jar: Path, tmp_path: Path) -> None:
    archive = archive_of(str(jar), directory=tmp_path)
    assert archive.options() == []
    archive.file.touch()
    assert archive.options() == [f"-XX:SharedArchiveFile={archive.file}", "-Xlog:disable"]
    archive.discard()
    archive.discard()
    assert archive.options() == []


def test_unusable_archive_directory_is_ignored(jar: Path, tmp_path: Path) -> None:
    for directory in (jar, jar / "archives"):
        archive = archive_of(str(jar), directory=directory)
        assert archive.options() == []
        assert archive.recording() is None
        archive.discard()


@pytest.mark.parametrize("is_there", [False, True])
def test_archive_directory_is_private(jar: Path, tmp_path: Path, is_there: bool) -> None:
    directory = tmp_path / "class-archives"
    if is_there:
        directory.mkdir(mode=0o755)
    recording = archive_of(str(jar), directory=directory).recording()
    assert recording is not None
    recording.cancel()
    assert directory.stat().st_mode & 0o777 == 0o700


def test_archive_in_a_read_only_directory_is_not_recorded(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = archive_of(str(jar), directory=tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert archive.recording() is None


def test_one_run_at_a_time_records_from_the_first_on(jar: Path, tmp_path: Path) -> None:
    archive = archive_of(str(jar), directory=tmp_path / "new")
    for _ in range(2):
        recording = archive.recording()
        assert recording is not None
        assert archive.recording() is None
        recording.cancel()


# Stands for Spark's driver. Its "JVM" ends when the test's pipe does; the archive is made by a java that
# writes down how it was called.
DRIVER = """
import subprocess, sys
from pathlib import Path
from shoal.spark.launch.archive import ClassArchive

java, jar, directory, last_class = sys.argv[1:]
archive = ClassArchive.of([java, "-cp", jar, "-Xmx512m", "-Da=b"], "17", Path(directory))
recording = archive.recording()
archive.file.with_suffix(".classes").write_text(f"java/lang/Object id: 0\\n{last_class} id: 1\\n")
jvm = subprocess.Popen(["cat"], stdin=sys.stdin, stdout=subprocess.DEVNULL, pass_fds=[recording.held_by_jvm])
jvm.returncode = 0
recording.make_at_exit()
print(archive.file)
"""

JAVA = """#!/bin/sh
echo "$@" > "${3#-XX:SharedArchiveFile=}"
exit %d
"""


LAST_CLASS = "org/apache/spark/api/python/PythonWorkerFactory"


def run_driver(tmp_path: Path, jar: Path, exit_code: int, last_class: str = LAST_CLASS) -> Path:
    """Run a driver and its JVM to their end; return the path of the expected archive."""
    java = tmp_path / "java"
    java.write_text(JAVA % exit_code)
    java.chmod(0o755)
    command = [sys.executable, "-c", DRIVER, str(java), str(jar), str(tmp_path), last_class]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        # The driver ends now; its JVM does not, since our pipe is open.
        archive = Path(driver.stdout.read().strip())
        assert driver.wait(TIMEOUT_S) == 0
        with archive.with_suffix(".seen").open() as lock:
            if last_class == LAST_CLASS:
                with pytest.raises(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            assert not archive.exists()
            driver.stdin.close()
            fcntl.flock(lock, fcntl.LOCK_EX)
    return archive


def test_archive_is_created_after_the_driver_and_its_jvm_ended(tmp_path: Path, jar: Path) -> None:
    archive = run_driver(tmp_path, jar, exit_code=0)
    classes = archive.with_suffix(".classes")
    unfinished = archive.with_suffix(".unfinished")
    assert archive.read_text().split() == [
        *("-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={unfinished}"),
        *("-Xmx512m", "-cp", str(jar)),
    ]
    assert not unfinished.exists()


def test_failed_archive_leaves_no_files(tmp_path: Path, jar: Path) -> None:
    archive = run_driver(tmp_path, jar, exit_code=1)
    assert not archive.exists()
    assert not archive.with_suffix(".unfinished").exists()


def test_run_that_ended_before_its_first_task_leads_to_no_archive(tmp_path: Path, jar: Path) -> None:
    archive = run_driver(tmp_path, jar, exit_code=0, last_class="org/apache/spark/SparkContext")
    assert not archive.exists()
