"""An error that a verb raises: on stderr, on stdout with ``--json``, as an exit code."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest

from shoal import native
from shoal.cli import main, verify
from shoal.cli.output import say
from shoal.errors import ConfigError, ShoalError
from tests.snapshots import Texts

ARGUMENTS = ("verify", "--from", "a:1", "--to", "b:1", "--topics", "x")

JAVA = "An error occurred.\n: java.io.IOException\n\tat org.apache.spark.Spark.run(Spark.java:1)\n"


@pytest.fixture(
    params=[
        (ConfigError("--topics: no"), 2, "--topics: no"),
        (ShoalError("lost"), 3, "lost"),
        (RuntimeError(JAVA), 3, "unexpected RuntimeError: An error occurred."),
    ],
    ids=lambda each: type(each[0]).__name__,
)
def raised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Exception, int, str]:
    """An error that the verb raises, its exit code and its sentence."""
    error: Exception = request.param[0]

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(verify, "parse_clusters", fail)
    return request.param  # type: ignore[no-any-return]


def test_error_is_one_line_on_stderr(
    raised: tuple[Exception, int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    error, exit_code, sentence = raised
    hint = "" if isinstance(error, ShoalError) else ". Use --verbose to see the traceback"
    assert main(ARGUMENTS) == exit_code
    assert capsys.readouterr() == ("", f"shoal: {sentence}{hint}\n")


def test_error_with_json_is_the_last_object_on_stdout(
    raised: tuple[Exception, int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    _, exit_code, sentence = raised
    assert main([*ARGUMENTS, "--json"]) == exit_code
    out, err = capsys.readouterr()
    assert json.loads(out) == {"type": "error", "error": sentence, "exit_code": exit_code}
    assert err.startswith(f"shoal: {sentence}")


def test_error_with_verbose_has_a_traceback(
    raised: tuple[Exception, int, str], capsys: pytest.CaptureFixture[str]
) -> None:
    error, _, sentence = raised
    main([*ARGUMENTS, "--verbose"])
    _, _, err = capsys.readouterr().err.partition("\n")
    assert err.startswith("Traceback")
    assert str(error) in err
    assert err.endswith(f"shoal: {sentence}\n")


@pytest.mark.parametrize(("loops", "named"), [(None, "Python"), (object(), "native")])
def test_verbose_says_how_the_inner_loops_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, loops: object, named: str
) -> None:
    monkeypatch.setattr(native, "NATIVE", loops)
    main(["inspect", "--from", "localhost:1", "--sample", "1", "--verbose"])
    assert capsys.readouterr().err.splitlines()[0] == f"shoal: inner loops: {named}"


def test_error_with_line_breaks_is_printed_on_one_line(
    capsys: pytest.CaptureFixture[str], texts: Texts
) -> None:
    say(f"\nSpark  says: {JAVA}")
    texts(capsys.readouterr().err)
