"""``shoal gateway-user``: an entry for the gateway's file of users."""

from __future__ import annotations

import argparse
import getpass
import sys

from ..errors import ConfigError
from .options import Subparsers

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "gateway-user",
        help="print an entry for the gateway's file of users",
        description="Read a password, from the terminal or from the first line of standard input, and "
        "print a user's entry for the file that 'shoal gateway --users' reads. The entry has salted SCRAM "
        "credentials, as Kafka stores them, and not the password.",
        epilog="Example. Append the output to the file of users, of mode 0600:\n\n  shoal gateway-user alice",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="the user's name")
    parser.add_argument("--verbose", action="store_true", help="show tracebacks with errors")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    from ..gateway.login import make_entry

    print(make_entry(args.name, _password(args.name)))
    return 0


def _password(name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    password = getpass.getpass(f"password of {name}: ", stream=sys.stderr)
    if getpass.getpass("once more: ", stream=sys.stderr) != password:
        raise ConfigError("the two passwords differ. Try again")
    return password
