"""The store of an archive: URLs, and a directory of the local file system."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from shoal.archive.store import open_store
from shoal.archive.urls import check_url, is_directory_url
from shoal.errors import ConfigError, ShoalError, StorageFailed


def test_is_directory_url_takes_urls_and_paths_and_leaves_servers() -> None:
    directories = ["s3://bucket/x", "/x", "./x", "../x", ".", "file:///x", "gs://b", "hdfs://host/x"]
    assert all(map(is_directory_url, directories))
    assert not any(map(is_directory_url, ["localhost:9092", "a:1,b:2", "[::1]:9092"]))


@pytest.mark.parametrize(
    "url",
    [
        "s3://user@bucket/x",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?access_key=a",
        "s3://bucket/x?secret_key=a",
        "s3://bucket/x#key",
        "gs://bucket/x?sig=1",
        "abfss://container:password@account/x",
        "abfss://container@account/x?sv=1&sig=2",
        "ftp://host/x",
        "s3:///x",
        "s3://bucket/x?endpoint_override=http://user:secret@host",
        "s3://bucket/x/../y",
        "gs://bucket/%2e%2e/y",
        "file://other/x",
    ],
)
def test_check_url_refuses_secrets_and_unknown_kinds(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_url("--to", url)
    assert "secret" not in str(refused.value).replace("secret_key", "")
    assert "password@" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://b/x?region=eu-central-1&endpoint_override=http://127.0.0.1:1",
        "abfss://c@a.dfs.core.windows.net/x",
        "abfss://c@a/x?blob_storage_authority=127.0.0.1:1&dfs_storage_authority=127.0.0.1:1&enable_tls=false",
    ],
)
def test_check_url_takes_regions_and_endpoints(url: str) -> None:
    check_url("--to", url)


def test_hdfs_without_hadoop_names_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_HOME", str(tmp_path))
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    with pytest.raises(ConfigError, match="HADOOP_HOME"):
        open_store("hdfs://namenode:8020/kafka")


def test_local_store_names_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(ConfigError, match="no directory"):
        open_store(str(tmp_path / "file")).open("archive.json")


def test_local_store_never_overwrites(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    store.write("a", b"first")
    with pytest.raises(ShoalError):
        store.write("a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_local_store_gives_a_file_of_its_file_system_another_name(tmp_path: Path) -> None:
    gathered = tmp_path / "gathered"
    gathered.write_bytes(b"batches")
    open_store(str(tmp_path / "archive")).write("b.log", gathered)
    assert (tmp_path / "archive/b.log").samefile(gathered)


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no other file system")
def test_local_store_copies_a_file_of_another_file_system(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        gathered = Path(elsewhere) / "gathered"
        gathered.write_bytes(b"batches")
        open_store(str(tmp_path)).write("b.log", gathered)
    assert (tmp_path / "b.log").read_bytes() == b"batches"
    assert [each.name for each in tmp_path.iterdir()] == ["b.log"]


def test_local_store_shows_nothing_of_a_write_that_fails(tmp_path: Path) -> None:
    unreadable = tmp_path / "directory"
    unreadable.mkdir()
    with pytest.raises(ShoalError, match="directory"):
        open_store(str(tmp_path / "archive")).write("a", unreadable)
    assert list((tmp_path / "archive").iterdir()) == []


def test_local_store_follows_no_link_out_of_the_directory(tmp_path: Path) -> None:
    inside = tmp_path / "archive"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (inside / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="leads out"):
        open_store(str(inside)).open("link")


def test_link_that_leads_to_itself_is_named_and_blocks_no_listing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_bytes(b"x")
    store = open_store(str(tmp_path))
    assert [each.name for each in store.names("")] == ["file"]
    for use in (
        lambda: store.open("loop"),
        lambda: store.names("loop/x"),
        lambda: store.write("loop", b""),
        lambda: store.write("loop/x", b""),
    ):
        with pytest.raises(ConfigError, match=r"loop.*leads to itself"):
            use()


def test_full_disk_is_a_failure_of_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = open_store(str(tmp_path), None)
    monkeypatch.setattr(os, "link", full)
    with pytest.raises(StorageFailed, match=r"^\S*/topics/x\.json: .*room"):
        store.write("topics/x.json", b"{}")
    assert not list((tmp_path / "topics").iterdir())


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_file_system_without_hard_links_has_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def without_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", without_links)
    gathered = tmp_path / "gathered"
    gathered.write_bytes(b"batches")
    store = open_store(str(tmp_path / "archive"))
    store.write("a", b"first")
    store.write("b.log", gathered)
    for data in (b"second", gathered):
        with pytest.raises(StorageFailed, match="exists"):
            store.write("a", data)
    found = {each.name: each.read_bytes() for each in (tmp_path / "archive").iterdir()}
    assert found == {"a": b"first", "b.log": b"batches"}
