"""The OCI image: not root, a read-only root, started and stopped as docs/operating.md says.

These tests run the image by runc alone, which engines call, too. They need root, runc, and the packages that
`make image` needs.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.start import TOPIC, loaded_brokers
from rig.ports import free_port
from shoal_broker import Broker
from tests.world.waiting import wait_until

ROOT = Path(__file__).parents[2]
NEEDED = ("mmdebstrap", "buildah", "runc")
MISSING = [each for each in NEEDED if shutil.which(each) is None]

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(MISSING) or os.geteuid() != 0, reason=f"needs root and {', '.join(NEEDED)}"),
]

MOST_BYTES = 700_000_000


@dataclass(frozen=True)
class Image:
    """An image that is unpacked.

    Attributes:
        root: Its root directory.
        config: The part ``config`` of its configuration.
        architecture: Its architecture, as Go names it.
        size: The bytes of its layers, not compressed.
    """

    root: Path
    config: dict[str, Any]
    architecture: str
    size: int


def unpacked(archive: Path, room: Path) -> Image:
    def blob(digest: str) -> Path:
        return room / "oci" / "blobs" / Path(*digest.split(":"))

    with tarfile.open(archive) as tar:
        tar.extractall(room / "oci", filter="tar")
    (named,) = json.loads((room / "oci" / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(named["digest"]).read_text())
    config = json.loads(blob(manifest["config"]["digest"]).read_text())
    root = room / "root"
    root.mkdir()
    size = 0
    for layer in manifest["layers"]:
        with tarfile.open(blob(layer["digest"])) as tar:
            tar.extractall(root, filter="fully_trusted", numeric_owner=True)  # noqa: S202
            size += sum(member.size for member in tar.getmembers())
    return Image(root, config["config"], config["architecture"], size)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    if not (archives := archives_of_this_source()):
        for script in ("build-dist", "build-image"):
            subprocess.run([ROOT / "scripts" / script], cwd=ROOT, check=True, timeout=1500)
        archives = archives_of_this_source()
    return unpacked(archives[0], tmp_path_factory.mktemp("image"))


def archives_of_this_source() -> list[Path]:
    """Return the image for this machine, if it is newer than the files that it is made of."""
    made_of = [ROOT / "pyproject.toml", ROOT / "scripts" / "build-image", *(ROOT / "src").rglob("*.*")]
    changed_at = max(file.stat().st_mtime for file in made_of if "__pycache__" not in file.parts)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    found = (ROOT / "dist").glob(f"shoal-*-{architecture}.oci.tar")
    return [each for each in found if each.stat().st_mtime > changed_at]


def specification(image: Image, arguments: Sequence[str]) -> dict[str, Any]:
    """Return runc's configuration: that of the image, the network of this machine, and two small tmpfs."""
    user = int(image.config["User"].partition(":")[0])
    tmpfs = ["nosuid", "nodev", "noexec", "mode=1777", "size=512m"]
    owned = ["nosuid", "nodev", "noexec", "mode=700", "size=512m", f"uid={user}", f"gid={user}"]
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(image.root), "readonly": True},
        "process": {
            "user": {"uid": user, "gid": user},
            "args": [*image.config["Entrypoint"], *arguments],
            "env": image.config["Env"],
            "cwd": image.config["WorkingDir"],
            "noNewPrivileges": True,
        },
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": tmpfs},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": tmpfs},
            {"destination": "/var/lib/shoal", "type": "tmpfs", "source": "tmpfs", "options": owned},
        ],
        "linux": {"namespaces": [{"type": each} for each in ("pid", "ipc", "mount")]},
    }


class Container:
    """A running container."""

    def __init__(self, image: Image, room: Path, *arguments: str) -> None:
        (room / "config.json").write_text(json.dumps(specification(image, arguments)))
        self.name = f"shoal-test-{os.getpid()}-{free_port()}"
        self.log = room / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["runc", "run", "--bundle", str(room), self.name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def ends_with(self, timeout_s: float) -> int:
        return self.process.wait(timeout_s)

    def stop(self) -> None:
        """Send SIGTERM to process 1, as engines do."""
        subprocess.run(["runc", "kill", self.name, "TERM"], check=True, timeout=30)

    def close(self) -> None:
        subprocess.run(["runc", "delete", "--force", self.name], check=False, timeout=30, capture_output=True)


def status_of(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_image_is_small_and_runs_as_a_user_behind_an_init(image: Image) -> None:
    assert image.size <= MOST_BYTES
    assert image.config["User"] == "10001:10001"
    assert image.config["Entrypoint"][0] == "/usr/bin/tini"
    licences = list(
        image.root.glob("usr/local/lib/python3.*/dist-packages/shoal-*.dist-info/licenses/LICENSE")
    )
    assert len(licences) == 1


def test_container_mirrors_and_stops_on_sigterm(image: Image, tmp_path: Path) -> None:
    port = free_port()
    with loaded_brokers() as (source, destination):
        container = Container(
            image,
            tmp_path,
            *("mirror", "--topics", TOPIC, "--master", "local[2]", "--metrics", f"127.0.0.1:{port}"),
            *("--from", source.bootstrap, "--to", destination.bootstrap),
        )
        try:

            def is_ready() -> bool:
                assert container.process.poll() is None, container.log.read_text()
                return status_of(port, "/readyz") == 200

            wait_until(is_ready, timeout_s=240)
            assert status_of(port, "/healthz") == 200
            wait_until(lambda: records_of(destination) == records_of(source), timeout_s=60)
            container.stop()
            assert container.ends_with(60) == 0, container.log.read_text()
        finally:
            container.close()
    assert "stopping on SIGTERM" in container.log.read_text()


def records_of(broker: Broker) -> int:
    topic = broker.topics.get(TOPIC)
    return sum(log.log_end_offset for log in topic.logs) if topic else 0


def test_command_of_the_image_is_the_help(image: Image, tmp_path: Path) -> None:
    container = Container(image, tmp_path, *image.config["Cmd"])
    try:
        assert container.ends_with(120) == 0
    finally:
        container.close()
    assert "usage: shoal" in container.log.read_text()
