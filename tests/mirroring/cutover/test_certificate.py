"""The certificate, written and read."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import ConfigError, ShoalError
from shoal.mirroring.cutover.certificate import (
    Certificate,
    CutCluster,
    CutGroupOffset,
    CutLog,
    CutPartition,
    read_certificate,
)
from shoal.mirroring.cutover.files import check_writable, write_certificate, write_page
from tests.snapshots import Texts

CERTIFICATE = Certificate(
    "2026-11-23T10:00:00+00:00",
    CutCluster("A", "a:9092"),
    CutCluster(None, "b:9092"),
    "shoal.A.B",
    "0123456789abcdef",
    {"orders": "west.orders"},
    (
        CutPartition(
            0, CutLog("orders", "id-1", 3, 10, 4), CutLog("west.orders", None, 0, 8, -1), (0, 0), 8, 5
        ),
        CutPartition(1, CutLog("orders", "id-1", 0, 0, 4), CutLog("west.orders", None, 0, 0, -1), None, 0, 0),
    ),
    (
        CutGroupOffset("app", "orders", 0, 7, 6, "exact", "unchanged"),
        CutGroupOffset("app", "orders", 1, 0, None, None, "no position"),
    ),
    {"quiet": 10.5},
)


def test_certificate_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    check_writable(str(file))
    write_certificate(str(file), CERTIFICATE)
    assert read_certificate(str(file)) == CERTIFICATE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [file]


def test_certificate_begins_with_its_type_and_version(tmp_path: Path) -> None:
    values = CERTIFICATE.as_json()
    assert list(values)[:3] == ["type", "version", "at"]
    assert (values["type"], values["version"]) == ("shoal cutover", 1)


@pytest.mark.parametrize("has_links", [True, False])
def test_certificate_never_replaces_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def without_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not has_links:
        monkeypatch.setattr(os, "link", without_links)
    file = tmp_path / "orders.json"
    file.write_text("mine")
    with pytest.raises(ConfigError, match=r"orders\.json'"):
        check_writable(str(file))
    with pytest.raises(ShoalError, match=r"written.*exists"):
        write_certificate(str(file), CERTIFICATE)
    assert file.read_text() == "mine"
    assert list(tmp_path.iterdir()) == [file]
    write_certificate(str(tmp_path / "another.json"), CERTIFICATE)
    assert read_certificate(str(tmp_path / "another.json")) == CERTIFICATE


def test_certificate_in_a_missing_directory_is_refused_before_the_cut_over(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"file.*directory"):
        check_writable(str(tmp_path / "missing" / "orders.json"))


def test_missing_certificate_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"certificate.*'.*'"):
        read_certificate(str(tmp_path / "orders.json"))


def test_page_that_exists_is_refused_before_the_cut_over(tmp_path: Path) -> None:
    (tmp_path / "orders.html").write_text("mine")
    with pytest.raises(ConfigError, match=r"orders\.html'"):
        check_writable(str(tmp_path / "orders.json"))


def test_page_has_the_values_of_the_certificate_as_text_and_no_code(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    hostile = replace(
        CERTIFICATE,
        groups=(replace(CERTIFICATE.groups[0], group="<script>alert(1)</script>"), *CERTIFICATE.groups[1:]),
    )
    write_page(str(file), hostile)
    page = (tmp_path / "orders.html").read_text()
    assert stat.S_IMODE((tmp_path / "orders.html").stat().st_mode) == 0o600
    assert "default-src 'none'" in page
    assert "<script" not in page
    for text in (
        "&lt;script&gt;alert(1)&lt;/script&gt;",
        "2 partitions of 1 topics, 8 records compared and equal, 2 consumer groups with 2 offsets.",
        "b:9092, by the mirror of group shoal.A.B",
        '<td class="name">west.orders-1</td>',
    ):
        assert text in page, text


def changed(path: str, value: Any) -> str:
    """Return the certificate with another value; names of the path are separated by dots."""
    values = json.loads(json.dumps(CERTIFICATE.as_json()))
    place = values
    *before, last = path.split(".")
    for name in before:
        place = place[int(name) if name.isdecimal() else name]
    place[last] = value
    return json.dumps(values)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        changed("type", "groups"),
        changed("version", 2),
        changed("version", True),
        changed("partitions", 7),
        changed("partitions.0.records", 9),
        changed("more", 1),
        changed("digest", None),
        "[" * 100_000,
    ],
)
def test_file_that_is_no_certificate_is_refused(tmp_path: Path, text: str, texts: Texts) -> None:
    file = tmp_path / "orders.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_certificate(str(file))
    texts(str(refused.value))


def test_certificate_of_a_later_shoal_may_have_more_names(tmp_path: Path) -> None:
    file = tmp_path / "orders.json"
    values = json.loads(changed("more", 1))
    del values["digest"]
    content = json.dumps(values, sort_keys=True, separators=(",", ":"))
    values["digest"] = hashlib.sha256(content.encode()).hexdigest()
    file.write_text(json.dumps(values))
    assert read_certificate(str(file)) == CERTIFICATE
