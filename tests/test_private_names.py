"""The check of private names finds those of other objects, and no others."""

from __future__ import annotations

from scripts.private_names import private_names

SOURCE = """
from shoal.gateway.budget import Budget, _LOOK_S
class Own:
    def f(self): return self._mine, super()._mine, Own.__doc__
wire._socket.close()
monkeypatch.setattr("shoal.gateway.budget._LOOK_S", 1)
monkeypatch.setattr(turns, "_free", 1)
place._replace(offset=KafkaError._TIMED_OUT)
"""


def test_private_names_of_other_objects_are_found() -> None:
    found = sorted(private_names(SOURCE))
    assert found == [(2, "_LOOK_S"), (5, "_socket"), (6, "_LOOK_S"), (7, "_free")]
