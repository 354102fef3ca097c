"""A file of properties with a password or a key is refused if other users can read it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.cli import main
from shoal_broker import Broker

MANIFEST = Path(__file__).parents[2] / "deploy" / "kubernetes" / "deployment.yaml"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECRETS = {
    "sasl.jaas.config": f'{JAAS} username="a" password="hidden-7c1e";',
    "ssl.key.password": "hidden-7c1e",
    "ssl.keystore.key": "hidden-7c1e",
    "sasl.oauthbearer.client.credentials.client.secret": "hidden-7c1e",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("orders")
        yield broker.bootstrap


def written(directory: Path, bootstrap: str, mode: int, name: str, value: str) -> Path:
    file = directory / "client.properties"
    file.write_text(f"bootstrap.servers={bootstrap}\n{name}={value}\n")
    file.chmod(mode)
    return file


@pytest.mark.parametrize(("name", "value"), SECRETS.items())
def test_file_with_a_secret_that_others_can_read_is_refused(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    file = written(tmp_path, bootstrap, 0o644, name, value)
    assert main(["inspect", "--from-config", str(file), "--topics", "orders"]) == 2
    err = capsys.readouterr().err
    assert all(each in err for each in ("--from-config", str(file), "0644", str(name)))
    assert f"Run: chmod 600 {file}" in err
    assert "hidden-7c1e" not in err


@pytest.mark.parametrize(
    "command",
    [
        ["mirror", "--from", "a:1", "--topics", "orders", "--dry-run", "--to-config"],
        ["verify", "--from", "a:1", "--topics", "orders", "--to-config"],
        ["mirror-maker", "--include", "orders", "--producer.config", os.devnull, "--consumer.config"],
        ["gateway", "--listen", "127.0.0.1:0", "--upstream-config"],
    ],
    ids=lambda command: command[0],
)
def test_each_option_for_a_cluster_has_the_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    file = written(tmp_path, "a:1", 0o640 if os.getuid() else 0o604, *next(iter(SECRETS.items())))
    assert main([*command, str(file)]) == 2
    err = capsys.readouterr().err
    assert f"{command[-1]} {file}: mode " in err
    assert f"Run: chmod 600 {file}" in err


def test_file_with_a_secret_of_its_user_alone_is_accepted(bootstrap: str, tmp_path: Path) -> None:
    file = written(tmp_path, bootstrap, 0o600, "ssl.key.password", "hidden")
    assert main(["inspect", "--from-config", str(file), "--topics", "orders"]) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a file that is root's")
def test_mode_of_the_manifests_is_accepted_in_a_file_of_root(bootstrap: str, tmp_path: Path) -> None:
    """With an fsGroup, Kubernetes gives the files of a secret to root and to this group."""
    text = MANIFEST.read_text(encoding="utf-8")
    (mode,) = set(re.findall(r"secretName: \S+, defaultMode: (\d+)", text))
    (group,) = re.findall(r"fsGroup: (\d+)", text)
    file = written(tmp_path, bootstrap, int(mode, 8), "ssl.key.password", "hidden")
    os.chown(file, 0, int(group))
    assert main(["inspect", "--from-config", str(file), "--topics", "orders"]) == 0


@pytest.mark.parametrize(
    ("name", "value"), [("isolation.level", "read_uncommitted"), ("ssl.truststore.password", "public")]
)
def test_file_without_a_secret_may_be_open(bootstrap: str, tmp_path: Path, name: str, value: str) -> None:
    file = written(tmp_path, bootstrap, 0o644, name, value)
    assert main(["inspect", "--from-config", str(file), "--topics", "orders"]) == 0
