"""The Kubernetes manifests agree with the command line, and with one another."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shoal.cli import main, make_parser
from shoal.cli.layers import with_lower_layers
from shoal.option_values import parse_listen

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "deploy" / "kubernetes"


def text_of(name: str) -> str:
    return (MANIFESTS / name).read_text(encoding="utf-8")


def only(pattern: str, text: str) -> str:
    (found,) = set(re.findall(pattern, text, re.MULTILINE))
    return str(found)


def test_files_of_the_kustomization_exist_and_all_manifests_are_in_it() -> None:
    named = set(
        re.findall(r"^ +- ([\w.-]+\.(?:yaml|toml|properties)|token)\b", text_of("kustomization.yaml"), re.M)
    )
    assert named == {each.name for each in MANIFESTS.iterdir()} - {"kustomization.yaml"}


def test_options_of_the_mirror_parse_and_their_files_are_mounted() -> None:
    arguments = only(r"args: \[(.*)\]", text_of("deployment.yaml")).split(", ")
    arguments[arguments.index("--config") + 1] = str(MANIFESTS / "mirror.toml")
    parser = make_parser()
    args = parser.parse_args(with_lower_layers(parser, arguments, {})[0])
    mounts = re.findall(r"mountPath: (\S+?)[,}]", text_of("deployment.yaml"))
    assert Path(args.from_config).parent == Path(args.to_config).parent
    assert str(Path(args.from_config).parent) in mounts
    for file in (args.from_config, args.to_config):
        assert f"- {Path(file).name}\n" in text_of("kustomization.yaml")


def test_port_of_the_metrics_is_the_same_everywhere() -> None:
    metrics = parse_listen("metrics", only(r'^metrics = "(.*)"$', text_of("mirror.toml")))
    assert only(r"containerPort: (\d+)", text_of("deployment.yaml")) == str(metrics.port)
    assert only(r" port: (\d+),", text_of("service.yaml")) == str(metrics.port)
    assert set(re.findall(r"path: (/\w+),", text_of("deployment.yaml"))) == {"/healthz", "/readyz"}


def test_metrics_need_a_token_that_the_service_monitor_sends() -> None:
    file = Path(only(r'^http-token-file = "(.*)"$', text_of("mirror.toml")))
    deployment, monitor = text_of("deployment.yaml"), text_of("servicemonitor.yaml")
    volume = only(rf"name: (\w+), mountPath: {file.parent}, readOnly: true", deployment)
    secret = only(rf"- name: {volume}\n +secret: {{secretName: ([\w-]+), defaultMode: 0440}}", deployment)
    assert f"credentials: {{name: {secret}, key: {file.name}}}" in monitor
    assert f"- name: {secret}\n    files:\n      - {file.name}\n" in text_of("kustomization.yaml")


def test_token_of_the_repository_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text(text_of("token"))
    token.chmod(0o600)
    command = ["mirror", "--from", "a:1", "--to", "b:1", "--topics", "orders", "--metrics", "127.0.0.1:0"]
    assert main([*command, "--http-token-file", str(token)]) == 2
    assert re.search(rf"--http-token-file {re.escape(str(token))}.*\b16\b", capsys.readouterr().err)


def test_deployment_is_one_locked_down_mirror_with_time_to_commit() -> None:
    deployment = text_of("deployment.yaml")
    for line in (
        "replicas: 1",
        "type: Recreate",
        "terminationGracePeriodSeconds: 60",
        "runAsNonRoot: true",
        "readOnlyRootFilesystem: true",
        "allowPrivilegeEscalation: false",
        "drop: [ALL]",
    ):
        assert f"{line}\n" in deployment or f"{line} #" in deployment, line


def test_every_selector_selects_the_pods_of_the_deployment() -> None:
    label = "app.kubernetes.io/name: shoal"
    for name in (
        "deployment.yaml",
        "service.yaml",
        "servicemonitor.yaml",
        "poddisruptionbudget.yaml",
        "networkpolicy.yaml",
    ):
        assert label in text_of(name), name


@pytest.mark.long  # the first run compiles kustomize for minutes
@pytest.mark.timeout(900)
def test_kubeconform_accepts_the_manifests() -> None:
    if shutil.which("go") is None:
        pytest.skip("no Go here, with which kubeconform is built")
    run = subprocess.run(
        [ROOT / "scripts" / "check-manifests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    kinds = re.findall(r"^stdin - (\w+) \S+ is valid$", run.stdout, re.MULTILINE)
    assert sorted(kinds) == [
        "ConfigMap",
        "Deployment",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "Secret",
        "Secret",
        "Service",
        "ServiceMonitor",
    ]
