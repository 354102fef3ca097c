"""The sdists and the wheels: their contents, their list of packages, and the same bytes at each build."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.start import TOPIC, loaded_brokers
from rig.shoal import SHOAL, installed_in, run_shoal
from shoal.cli import VERBS
from tests.native_path import needs_native

ROOT = Path(__file__).parent.parent
SBOM = ROOT / "sbom" / "shoal.cdx.json"

#: A tenth of an installation with PySpark.
MOST_BYTES_WITHOUT_SPARK = 60_000_000


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def test_sbom_has_each_direct_dependency_in_a_supported_version(project: dict[str, Any]) -> None:
    components = {
        canonicalize_name(each["name"]): each["version"]
        for each in json.loads(SBOM.read_text(encoding="utf-8"))["components"]
        if each["purl"].startswith("pkg:pypi/")
    }
    of_mirrors = project["optional-dependencies"]["spark"]
    wanted = [Requirement(each) for each in (*project["dependencies"], *of_mirrors)]
    missing = [
        str(each)
        for each in wanted
        if (version := components.get(canonicalize_name(each.name))) is None or version not in each.specifier
    ]
    assert missing == [], "run make sbom"


def test_sbom_has_the_crates_of_the_lock_and_no_others() -> None:
    with (ROOT / "native" / "Cargo.lock").open("rb") as file:
        lock = tomllib.load(file)["package"]
    wanted = {f"pkg:cargo/{crate['name']}@{crate['version']}": crate for crate in lock}
    assert "pkg:cargo/shoal-native@0.1.0" in wanted
    sbom = json.loads(SBOM.read_text(encoding="utf-8"))
    native = re.compile("pkg:cargo/")
    components = [each for each in sbom["components"] if native.match(each["purl"])]
    assert sorted(each["purl"] for each in components) == sorted(wanted), "run scripts/add_crates.py"
    brought = {
        each["ref"]: {ref.partition("/")[2].partition("@")[0] for ref in each.get("dependsOn", [])}
        for each in sbom["dependencies"]
    }
    assert {ref: brought.get(ref) for ref in wanted} == {
        ref: set(crate.get("dependencies", [])) for ref, crate in wanted.items()
    }


def test_sbom_excludes_crates_that_only_serve_the_build() -> None:
    scopes = {
        each["name"]: each["scope"]
        for each in json.loads(SBOM.read_text(encoding="utf-8"))["components"]
        if each["purl"].startswith("pkg:cargo/")
    }
    # A library, a system's interface; a macro, its parser, a build script's tool, another system's interface.
    names = ("pyo3", "rustix", "linux-raw-sys", "pyo3-macros", "syn", "pyo3-build-config", "windows-sys")
    assert [scopes[each] for each in names] == [*["optional"] * 3, *["excluded"] * 4]


def test_sbom_describes_this_version_and_names_each_licence(project: dict[str, Any]) -> None:
    sbom = json.loads(SBOM.read_text(encoding="utf-8"))
    main = sbom["metadata"]["component"]
    assert (main["name"], main["version"]) == ("shoal", project["version"])
    assert [each["name"] for each in sbom["components"] if not each.get("licenses")] == []


def test_sbom_names_no_file_of_the_machine_that_wrote_it() -> None:
    assert re.findall(r'"(?:file:|/)[^"]*"', SBOM.read_text(encoding="utf-8")) == []


def test_broker_has_shoals_version_and_each_requires_the_other_in_it(project: dict[str, Any]) -> None:
    with (ROOT / "broker" / "pyproject.toml").open("rb") as file:
        broker = tomllib.load(file)["project"]
    version = project["version"]
    assert broker["version"] == version
    assert broker["dependencies"] == [f"shoal=={version}"]
    assert f"shoal-broker=={version}" in project["optional-dependencies"]["demo"]
    same = ("license", "requires-python")
    assert [broker[each] for each in same] == [project[each] for each in same]
    assert (ROOT / "broker" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@dataclass(frozen=True)
class Distributions:
    """The files in ``dist``.

    Attributes:
        sdist: That of shoal.
        wheel: That of shoal.
        broker_wheel: That of shoal-broker.
    """

    sdist: Path
    wheel: Path
    broker_wheel: Path


@pytest.fixture(scope="module")
def distribution() -> Distributions:
    """Return the files that ``make dist`` builds twice and compares, without those of the native module."""
    run = subprocess.run(
        [ROOT / "scripts" / "build-dist", "none"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("PASSED") == 4
    patterns = ("shoal-*.tar.gz", "shoal-*.whl", "shoal_broker-*.whl")
    ((sdist,), (wheel,), (broker_wheel,)) = (list((ROOT / "dist").glob(each)) for each in patterns)
    return Distributions(sdist, wheel, broker_wheel)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_wheel_carries_licence_sbom_types_and_manual(distribution: Distributions) -> None:
    with zipfile.ZipFile(distribution.wheel) as wheel:
        names = {re.sub(r"^shoal-[^/]*\.", "", name) for name in wheel.namelist()}
        assert {
            "dist-info/licenses/LICENSE",
            "dist-info/sboms/shoal.cdx.json",
            "data/data/share/man/man1/shoal.1",
            "shoal/py.typed",
            "shoal/mirroring/monitoring/page/page.css",
            "shoal/mirroring/monitoring/page/page.html",
            "shoal/mirroring/monitoring/page/page.js",
            "shoal/static_page/document.html",
        } <= names
        (manual,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith("/shoal.1"))
    headings = re.findall(r"^\.SS \\fBshoal (.*?)\\fR$", manual, re.MULTILINE)
    assert [each.replace("\\-", "-") for each in headings] == list(VERBS)


def wheel_from_sources(directory: Path, **environment: str) -> zipfile.ZipFile:
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(directory),
        str(ROOT),
    ]
    subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, timeout=600)
    (wheel,) = directory.glob("*.whl")
    return zipfile.ZipFile(wheel)


@pytest.mark.integration
@pytest.mark.timeout(600)
@needs_native
def test_wheel_from_sources_has_the_native_module_for_each_python(tmp_path: Path) -> None:
    wheel = wheel_from_sources(tmp_path)
    assert "shoal/_native.abi3.so" in wheel.namelist()
    assert f"-cp311-abi3-linux_{platform.machine()}." in str(wheel.filename)


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_wheel_from_sources_needs_no_cargo(tmp_path: Path) -> None:
    wheel = wheel_from_sources(tmp_path, PATH="/nowhere")
    assert [name for name in wheel.namelist() if "_native" in name] == []
    assert str(wheel.filename).endswith("-py3-none-any.whl")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_installation_without_spark_is_small(distribution: Distributions, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    subprocess.run([*pip, "install", "--quiet", str(distribution.wheel)], check=True)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size < MOST_BYTES_WITHOUT_SPARK
    for verb in ("verify", "inspect", "groups", "cutover", "gateway", "control"):
        done = run_shoal(verb, "--help", program=(python, *SHOAL))
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_broker_is_in_its_own_wheel_alone(distribution: Distributions) -> None:
    names = [zipfile.ZipFile(each).namelist() for each in (distribution.wheel, distribution.broker_wheel)]
    packages = [{name.split("/")[0] for name in each if ".dist-info/" not in name} for each in names]
    of_shoal, of_broker = packages
    assert {each for each in of_shoal if not each.endswith(".data")} == {"shoal"}
    assert of_broker == {"shoal_broker"}
    assert [name for name in names[0] if "broker" in Path(name).parts or "demo" in Path(name).stem] == []
    assert {"shoal_broker/py.typed", "shoal_broker/__main__.py"} <= set(names[1])
    with zipfile.ZipFile(distribution.broker_wheel) as wheel:
        (commands,) = (wheel.read(name).decode() for name in names[1] if name.endswith("/entry_points.txt"))
    assert re.findall(r"^(\S+) =", commands, re.MULTILINE) == ["shoal-broker", "shoal-demo"]


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_sdist_has_sources_and_licence_and_nothing_ignored(distribution: Distributions) -> None:
    with tarfile.open(distribution.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
        times = {member.mtime for member in sdist.getmembers()}
    assert {"LICENSE", "sbom/shoal.cdx.json", "src/shoal/cli/mirror.py", "docs/operating.md"} <= names
    assert [name for name in names if name.startswith((".venv", ".kafka")) or name.endswith(".pyc")] == []
    assert len(times) == 1


#: How each installer installs a package, with a Python, as a program of its own.
INSTALLERS = {"pipx": ("install", "--python"), "uv": ("tool", "install", "--quiet", "--python")}


@pytest.mark.long
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("installer", INSTALLERS)
def test_installed_wheel_mirrors_on_a_machine_with_python_alone(
    distribution: Distributions, installer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, python = tmp_path / "tools", tmp_path / "path" / "python3"
    subprocess.run([sys.executable, "-m", "venv", tools], check=True)
    subprocess.run([tools / "bin" / "python", "-m", "pip", "install", "--quiet", installer], check=True)
    python.parent.mkdir()
    for name in ("python3", "python"):
        python.with_name(name).symlink_to(Path(sys.executable).resolve())
    for name in ("JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    environment = {
        "PATH": str(python.parent),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        **{name: str(tmp_path / name) for name in ("PIP_CACHE_DIR", "UV_CACHE_DIR", "PIPX_MAN_DIR")},
        **dict.fromkeys(("PIPX_HOME", "UV_TOOL_DIR"), str(tmp_path / "installation")),
        **dict.fromkeys(("PIPX_BIN_DIR", "UV_TOOL_BIN_DIR"), str(tmp_path / "bin")),
    }
    # With the Java of the extra.
    package = f"{distribution.wheel}[spark,java]"
    install: list[str | Path] = [tools / "bin" / installer, *INSTALLERS[installer], python, package]
    subprocess.run(install, env={**os.environ, **environment}, timeout=1800, check=True)
    installed = installed_in(tmp_path / "bin")
    with loaded_brokers() as (source, destination):
        clusters = ("--from", source.bootstrap, "--to", destination.bootstrap)
        for way in ("--dry-run", "--once"):
            mirror = ("mirror", "--topics", TOPIC, *clusters, way)
            done = run_shoal(*mirror, program=installed, environment=environment, timeout_s=1800)
            assert done.returncode == 0, done.stderr
