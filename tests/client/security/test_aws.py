"""Tokens for Amazon MSK: the options of IAMLoginModule, the presigned request, and a whole login."""

from __future__ import annotations

import base64
import itertools
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import botocore.client
import pytest

from shoal.client.cluster import Cluster
from shoal.client.config import ClientConfig
from shoal.client.security import read_security
from shoal.client.security.aws import IAM_TOKENS, IamTokens
from shoal.client.security.login import NoCredentials, OAuthLogin, TokenClass
from shoal.client.security.token import AccessToken
from shoal.client.security.tokens import retrieve
from shoal.errors import AccessRefused, ConfigError
from tests.sasl_broker import Answer, sasl_broker
from tests.snapshots import Texts

IAM = "software.amazon.msk.auth.iam"
BOOTSTRAP = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"
#: The credentials of AWS's own examples.
KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the environment, and nothing else, have credentials."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def iam(options: str = "", **changed: str) -> dict[str, str]:
    return {
        "bootstrap.servers": BOOTSTRAP,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{IAM}.IAMLoginModule required {options};",
        "sasl.client.callback.handler.class": f"{IAM}.IAMClientCallbackHandler",
        **changed,
    }


def source_of(properties: dict[str, str]) -> TokenClass:
    security = read_security(properties, "the file")
    assert security is not None
    assert isinstance(security.login, OAuthLogin)
    assert security.mechanism == "OAUTHBEARER"
    assert isinstance(security.login.source, TokenClass)
    return security.login.source


def options_of(properties: dict[str, str]) -> dict[str, str]:
    source = source_of(properties)
    assert source.name == IAM_TOKENS
    return dict(source.options)


#: A process keeps the credentials of a login, and each test has others.
_numbers = itertools.count()


def token_of(**options: str) -> AccessToken:
    given = {"region": "eu-west-1", "number": str(next(_numbers)), **options}
    return retrieve(OAuthLogin(TokenClass(IAM_TOKENS, tuple(given.items()))))


def test_properties_of_both_mechanisms_are_read_alike() -> None:
    by_oauth = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
        "sasl.client.callback.handler.class": f"{IAM}.IAMOAuthBearerLoginCallbackHandler",
    }
    assert options_of(iam()) == options_of(iam(**by_oauth)) == {"region": "eu-west-1"}


def test_options_of_the_login_module_are_read() -> None:
    options = (
        'awsProfileName="dev" awsRoleArn="arn:aws:iam::1:role/mirror" awsRoleSessionName="shoal" '
        'awsRoleExternalId="x" awsStsRegion="us-east-1" awsDebugCreds="true" awsMaxRetries="7"'
    )
    assert options_of(iam(options)) == {
        "region": "eu-west-1",
        "awsProfileName": "dev",
        "awsRoleArn": "arn:aws:iam::1:role/mirror",
        "awsRoleSessionName": "shoal",
        "awsRoleExternalId": "x",
        "awsStsRegion": "us-east-1",
    }
    key = 'awsRoleArn="a" awsRoleAccessKeyId="k" awsRoleSecretAccessKey="s" awsRoleSessionToken="t"'
    assert options_of(iam(key))["awsRoleSecretAccessKey"] == "s"
    assert "awsRoleSecretAccessKey" not in repr(source_of(iam(key)))


def test_region_of_a_custom_domain_is_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    serverless = "boot-x.c1.kafka-serverless.us-west-2.amazonaws.com:9098"
    assert options_of(iam(**{"bootstrap.servers": serverless}))["region"] == "us-west-2"
    with pytest.raises(ConfigError, match=r"MSK.*AWS_REGION"):
        read_security(iam(**{"bootstrap.servers": "kafka.example:9098"}), "the file")
    monkeypatch.setenv("AWS_REGION", "ap-south-1")
    assert options_of(iam(**{"bootstrap.servers": "kafka.example:9098"}))["region"] == "ap-south-1"


@pytest.mark.parametrize("options", ['awsProfil="dev"', 'awsRoleAccessKeyId="k"'])
def test_unusable_option_is_named(options: str, texts: Texts) -> None:
    with pytest.raises(ConfigError) as refused:
        read_security(iam(options), "the file")
    texts(str(refused.value))


def test_missing_package_of_an_executor_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(NoCredentials, match=r"aws_msk_iam_sasl_signer.*'shoal\[msk\]'"):
        token_of()


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"'shoal\[msk\]'"):
        read_security(iam(), "the file")


def signed_url(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


@pytest.mark.parametrize("session_token", [None, "token/of+a=session"])
def test_token_is_the_presigned_request_of_msk(
    monkeypatch: pytest.MonkeyPatch, session_token: str | None
) -> None:
    if session_token:
        monkeypatch.setenv("AWS_SESSION_TOKEN", session_token)
    token = token_of()
    assert token.lives_s is None  # each login has its own
    url = signed_url(token.value)
    query = dict(parse_qsl(urlsplit(url).query))
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert query["X-Amz-Algorithm"] == "AWS4-HMAC-SHA256"
    assert (
        query["X-Amz-Credential"] == f"{KEY}/{query['X-Amz-Date'][:8]}/eu-west-1/kafka-cluster/aws4_request"
    )
    assert query["X-Amz-Expires"] == "900"
    assert query["X-Amz-SignedHeaders"] == "host"
    assert query.get("X-Amz-Security-Token") == session_token
    assert query["User-Agent"].startswith("aws-msk-iam-sasl-signer-python")
    assert query["X-Amz-Signature"]
    assert SECRET not in url


def test_profile_is_read(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[dev]\naws_access_key_id=OTHER\naws_secret_access_key=s\n")
    (tmp_path / "config").write_text("[profile dev]\n")
    url = signed_url(token_of(awsProfileName="dev").value)
    assert "X-Amz-Credential=OTHER%2F" in url
    with pytest.raises(NoCredentials, match=r"profile.*Check") as error:
        token_of(awsProfileName="none")
    assert not error.value.may_pass


def test_role_is_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def call(self: Any, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        asked.append((f"{self.meta.region_name} {operation}", arguments))
        key = {"AccessKeyId": "ROLE", "SecretAccessKey": "r", "SessionToken": "rt"}
        return {"Credentials": {**key, "Expiration": "2999-01-01T00:00:00Z"}}

    monkeypatch.setattr(botocore.client.BaseClient, "_make_api_call", call)
    role = {"awsRoleArn": "arn:aws:iam::1:role/m", "awsRoleExternalId": "x", "awsStsRegion": "us-east-1"}
    tokens = IamTokens({"region": "eu-west-1", **role})
    assert tokens.token()
    query = dict(parse_qsl(urlsplit(signed_url(tokens.token())).query))
    assert asked == [
        (
            "us-east-1 AssumeRole",
            {"RoleArn": "arn:aws:iam::1:role/m", "RoleSessionName": "aws-msk-iam-auth", "ExternalId": "x"},
        )
    ]
    assert query["X-Amz-Credential"].startswith("ROLE/")
    assert query["X-Amz-Security-Token"] == "rt"


def test_missing_credentials_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(NoCredentials, match=r"AWS.*AWS_PROFILE") as error:
        token_of()
    assert not error.value.may_pass


def config_of(address: str) -> ClientConfig:
    """Return the configuration of a login to a broker of the tests, which has no TLS."""
    properties = {**iam(), "security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": address}
    return ClientConfig.from_properties("source", properties)[0]


def test_broker_of_msk_receives_the_signed_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    received: list[bytes] = []

    def answer(message: bytes) -> Answer:
        received.append(message)
        return b"", True

    with sasl_broker(answer) as address, Cluster(config_of(address)) as cluster:
        cluster.refresh([])
    token = received[0].removeprefix(b"n,,\x01auth=Bearer ").removesuffix(b"\x01\x01").decode()
    url = signed_url(token)
    assert dict(parse_qsl(urlsplit(url).query))["X-Amz-Credential"].startswith(f"{KEY}/")


def test_refusal_of_msk_names_the_action(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")

    def answer(message: bytes) -> Answer | None:
        return None if message == b"\x01" else (b'{"status":"no"}', False)

    with (
        sasl_broker(answer) as address,
        Cluster(config_of(address)) as cluster,
        pytest.raises(AccessRefused, match="allow kafka-cluster:Connect"),
    ):
        cluster.refresh([])
