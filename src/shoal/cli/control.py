"""``shoal control``: steer a running mirror."""

from __future__ import annotations

import argparse

from ..errors import ConfigError
from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..mirroring.driver.control_socket import ask_mirror
from ..mirroring.driver.steering_commands import COMMANDS
from .options import Subparsers, add_output_options
from .output import print_json, say

__all__ = ["add_parser", "run"]


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    commands = "\n".join(
        f"  {f'{name} {each.arguments}'.strip():31}  {each.meaning}" for name, each in COMMANDS.items()
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
        allow_abbrev=False,
    )
    parser.add_argument("path", metavar="PATH", help="the path of the mirror's control socket")
    parser.add_argument(
        "command", metavar="COMMAND", choices=list(COMMANDS), help="the command, one of those below"
    )
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="the arguments of the command")
    add_output_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    words = [args.command, *args.arguments]
    for each in words:
        if len(each.split()) != 1:
            raise ConfigError(f"{args.command}: the argument {each!r} is empty or has a space. Remove it")
    answer = ask_mirror(args.path, " ".join(words))
    if args.json:
        print_json(answer)
    elif answer["ok"]:
        print(answer["text"], flush=True)
    if not answer["ok"]:
        say(str(answer["text"]))
    return EXIT_DONE if answer["ok"] else EXIT_FAILED
