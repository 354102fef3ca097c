"""Credentials of an object store, which no text shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from shoal.archive.credentials import StoreCredentials
from shoal.client.cluster import Cluster
from shoal.client.config import ArchiveConfig, ClientConfig
from shoal.client.security import Security
from shoal.errors import ConfigError
from shoal.mirroring.credentials import PROCESS_KEY, Credentials
from tests.archive.archives import described

S3 = {"s3.access.key": "AKIA", "s3.secret.key": "hidden", "s3.session.token": "brief"}


def config_of(url: str, **properties: str) -> ClientConfig:
    return ClientConfig.given("source", {"bootstrap.servers": url, **properties}, None)


def test_credentials_are_read_from_the_properties_of_an_end() -> None:
    given = ("access_key", "AKIA"), ("secret_key", "hidden"), ("session_token", "brief")
    assert config_of("s3://bucket/kafka", **S3).security == Security(store=StoreCredentials(given))
    found = config_of("abfss://c@a.dfs.core.windows.net/x", **{"abfss.account.key": "k"}).security
    assert found == Security(store=StoreCredentials((("account_key", "k"),)))
    assert config_of("s3://bucket/kafka").security is None


@pytest.mark.parametrize(
    ("url", "properties"),
    [
        ("s3://bucket/kafka", {"s3.access.key": "hidden"}),
        ("s3://bucket/kafka", {"s3.session.token": "hidden"}),
        ("s3://bucket/kafka", {"abfss.account.key": "hidden"}),
        ("/local", {"s3.access.key": "hidden", "s3.secret.key": "hidden"}),
        ("abfss://c@a.dfs.core.windows.net/x", {"abfss.account.key": "hidden", "abfss.sas.token": "hidden"}),
    ],
)
def test_credentials_that_do_not_fit_are_refused_without_their_values(
    url: str, properties: dict[str, str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(url, **properties)
    assert "hidden" not in str(refused.value)


def test_credentials_are_in_no_text_of_the_configuration() -> None:
    config = config_of("s3://bucket/kafka", **S3)
    texts = [repr(config), str(Cluster(config))]
    assert not any(secret in text for secret in S3.values() for text in texts)


def test_credentials_travel_sealed() -> None:
    config = config_of("s3://bucket/kafka", **S3)
    sealed = Credentials.of(config).seal(PROCESS_KEY)
    assert not any(secret in sealed for secret in S3.values())
    received = Credentials.unseal(sealed, PROCESS_KEY).into(replace(config, security=None))
    assert received.security is not None
    assert config.security is not None
    assert received.security.store == config.security.store


def test_bucket_is_opened_with_the_keys_of_the_properties(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.create_bucket(Bucket="by-keys")
    url = f"s3://by-keys/kafka?region=us-east-1&endpoint_override={endpoint}"
    config = ArchiveConfig.at_directory("source", url, S3, "the test")
    config.open_archive(creates=True).describe(described())
    with Cluster(config) as archive:
        assert "orders" in archive.refresh().topics
