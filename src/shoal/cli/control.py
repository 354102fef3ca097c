"""``shoal control``: steer a running mirror, by POST requests to its control socket."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from ..errors import ConfigError, Disconnected, ProtocolError
from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..mirroring.driver.steering import COMMANDS
from ..net.private_socket import user_of
from ..printable import printable
from .options import Subparsers, add_output_options
from .output import print_json, say

__all__ = ["add_parser", "ask_mirror", "run"]

#: A command may wait for others, and match expressions on a busy machine.
_PATIENCE_S = 60.0

#: The longest answer that is read: the topics of a large cluster.
_LONGEST_ANSWER = 64 * 1024 * 1024


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    commands = "\n".join(
        f"  {f'{name} {each.usage}'.strip():31}  {each.meaning}" for name, each in COMMANDS.items()
    )
    parser = verbs.add_parser(
        "control",
        help="steer a running mirror",
        description="Send a command to a running 'shoal mirror --control PATH', and print its answer. A "
        "restart of the mirror forgets what you set. Exit codes: 0 done; 1 the mirror refused the command, "
        "or no mirror answers; 2 usage.",
        epilog=f"Commands:\n\n{commands}\n\nTOPICS is a topic's name, or a regular expression that must "
        "match a whole name. TOPIC is the name of one topic, and KIND the kind of the incident that stopped "
        "it, as --continue-after of 'shoal mirror' names it. Example: limit a mirror, and pause some of its "
        "topics:\n\n"
        "  shoal control /run/shoal/orders.sock limit 50m\n"
        "  shoal control /run/shoal/orders.sock pause 'logs\\..*'",
    )
    parser.add_argument("path", metavar="PATH", help="the path of the mirror's control socket")
    parser.add_argument(
        "command", metavar="COMMAND", choices=list(COMMANDS), help="the command, one of those below"
    )
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="the arguments of the command")
    add_output_options(parser)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    names = COMMANDS[args.command].arguments
    if len(args.arguments) > len(names):
        usage = f"{args.command} {COMMANDS[args.command].usage}".strip()
        raise ConfigError(f"{args.command}: {len(args.arguments)} arguments are given. Use '{usage}'")
    answer = ask_mirror(args.path, args.command, dict(zip(names, args.arguments, strict=False)))
    if args.json:
        print_json(answer)
    elif answer["ok"]:
        print(answer["text"], flush=True)
    if not answer["ok"]:
        say(str(answer["text"]))
    return EXIT_DONE if answer["ok"] else EXIT_FAILED


class _ToMirror(http.client.HTTPConnection):
    """A connection to a mirror's control socket, if the mirror is of this user or of root."""

    def __init__(self, path: str) -> None:
        super().__init__("shoal", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        if user_of(self.sock) not in (os.geteuid(), 0):
            raise PermissionError


def ask_mirror(path: str, command: str, arguments: Mapping[str, str] | None = None) -> dict[str, Any]:
    """
    Send a command to a running mirror, and return its answer as an object.

    Args:
        path: The path of its control socket.
        command: The command.
        arguments: Its arguments, by name.

    Raises:
        Disconnected: No mirror listens there, or it does not answer.
        ConfigError: A process of another user listens there, or may listen.
        ProtocolError: The answer is not one of a mirror.

    """
    where = f"the control socket {path}"
    if not hasattr(socket, "SO_PEERCRED"):
        raise ConfigError(f"{where} needs Linux: this system does not show which user listens")
    connection = _ToMirror(path)
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    try:
        connection.request("POST", f"/{command}", urlencode(arguments or {}), headers)
        text = connection.getresponse().read(_LONGEST_ANSWER)
    except PermissionError:
        raise ConfigError(f"{where} belongs to another user. Run the command as that user") from None
    except OSError as error:
        raise Disconnected(where, f"no mirror answers: {error.strerror or error}") from error
    except http.client.HTTPException as error:
        raise ProtocolError(f"{where} sent no answer of a mirror: {printable(str(error))[:200]}") from None
    finally:
        connection.close()
    try:
        answer: dict[str, Any] = json.loads(text)
        _ = answer["ok"], answer["text"]
    except (ValueError, KeyError, TypeError):
        first = printable(text.decode(errors="replace").strip()[:200])
        raise ProtocolError(f"{where} sent no answer of a mirror: {first or 'nothing'}") from None
    return answer
