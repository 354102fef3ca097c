"""The option of a task that joins batches into larger ones."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.mirroring.model.copy_options import Rebatch
from shoal.records import Codec


@pytest.mark.parametrize(
    ("text", "rebatch"),
    [
        ("64k", Rebatch(65_536)),
        ("1m:zstd", Rebatch(1_048_576, Codec.ZSTD)),
        ("122:none", Rebatch(122, Codec.NONE)),
        ("500:LZ4", Rebatch(500, Codec.LZ4)),
    ],
)
def test_rebatch_option_yields_bytes_and_codec(text: str, rebatch: Rebatch) -> None:
    assert Rebatch.parse("rebatch", text) == rebatch
    assert Rebatch.parse("rebatch", str(rebatch)) == rebatch


@pytest.mark.parametrize("text", ["", "x", "64k:", "64k:brotli", "121", "2m", ":zstd", "64k:zstd:9"])
def test_invalid_rebatch_option_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="rebatch"):
        Rebatch.parse("rebatch", text)
