"""How a handler is made."""

from __future__ import annotations

import pytest

from shoal.errors import ConfigError
from shoal.handlers import MirrorMakerMessageHandler
from shoal.mirroring.model.copy_options import Handling
from shoal.mirrormaker.handlers import load_handler


class Initialised(MirrorMakerMessageHandler):
    args: str | None = "not called"

    def init(self, args: str | None) -> None:
        if args == "bad":
            raise ValueError("no such thing")
        self.args = args


class Constructed(MirrorMakerMessageHandler):
    def __init__(self, args: str = "none") -> None:
        self.args = args


def handling(handler: type, args: str | None) -> Handling:
    return Handling(f"{__name__}:{handler.__name__}", args, False, {}, {})


@pytest.mark.parametrize(
    ("handler", "args", "given"),
    [
        (Initialised, "a,b", "a,b"),
        (Initialised, None, None),
        (Constructed, "x", "x"),
        (Constructed, None, "none"),
    ],
)
def test_handler_receives_arguments_by_init_or_constructor(
    handler: type, args: str | None, given: str | None
) -> None:
    made = load_handler(handling(handler, args))
    assert isinstance(made, (Initialised, Constructed))
    assert made.args == given


def test_init_that_raises_is_named() -> None:
    with pytest.raises(ConfigError, match=r"Initialised.*'bad'"):
        load_handler(handling(Initialised, "bad"))
