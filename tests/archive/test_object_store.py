"""Archives in S3's protocol, by moto's server."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path

import boto3
import pytest

from shoal.archive.credentials import StoreCredentials
from shoal.archive.files import read_whole
from shoal.archive.store import open_store
from shoal.errors import ConfigError, Disconnected, StorageFailed
from shoal.timing import Timing
from tests.archive.archives import add, new_archive, objects_of, plain


def test_bucket_that_is_not_there_is_a_sentence(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        open_store(f"s3://nowhere/kafka?region=us-east-1&endpoint_override={endpoint}")


def test_bucket_that_was_deleted_is_not_taken_for_an_empty_archive(
    bucket: str, endpoint: str, tmp_path: Path
) -> None:
    archive = new_archive(bucket)
    add(archive, plain(3), tmp_path)
    objects = objects_of(archive)
    client = boto3.resource("s3", endpoint_url=endpoint, region_name="us-east-1")
    name = bucket.removeprefix("s3://").partition("/")[0]
    client.Bucket(name).objects.all().delete()
    client.Bucket(name).delete()
    for look in (objects.look, archive.topics, lambda: objects_of(archive)):
        with pytest.raises(ConfigError, match=name):
            look()


def test_store_that_does_not_answer_may_be_tried_again() -> None:
    url = "s3://bucket/kafka?region=us-east-1&endpoint_override=http://127.0.0.1:1"
    with pytest.raises(Disconnected, match="s3://bucket/kafka"):
        open_store(url)


def test_store_that_takes_a_connection_and_sends_nothing_is_named() -> None:
    keys, timing = StoreCredentials((("account_key", "a2V5"),)), Timing(store_answers_s=0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        there = f"127.0.0.1:{silent.getsockname()[1]}"
        url = f"abfss://c@a.dfs.core.windows.net/x?blob_storage_authority={there}&enable_tls=false"
        with pytest.raises(Disconnected, match=r"abfss://c@a.*no answer"):
            open_store(f"{url}&dfs_storage_authority={there}", keys, timing)


def test_messages_have_no_parameters_of_the_url(bucket: str) -> None:
    assert "endpoint" not in open_store(bucket).url


def test_store_never_overwrites(bucket: str) -> None:
    store = open_store(bucket)
    store.write("a", b"first")
    with pytest.raises(StorageFailed, match=r"kafka/a: .*overwrites nothing"):
        store.write("a", b"second")
    with closing(store.open("a")) as file:
        assert read_whole(file) == b"first"
