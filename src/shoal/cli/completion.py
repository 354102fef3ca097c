"""``shoal completion``: the script by which a shell completes shoal's verbs and options."""

from __future__ import annotations

import argparse

from ..exit_codes import EXIT_DONE, EXIT_FAILED
from ..kinds import DIRECTORY, FILE
from .options import Subparsers
from .parser import options_of, verbs_of

__all__ = ["add_parser", "run"]

_SHELLS = ("bash", "zsh", "fish")

#: The path of a control socket, which `shoal control` takes.
_PATH = "PATH"


def add_parser(verbs: Subparsers) -> None:
    """Add the verb."""
    parser = verbs.add_parser(
        "completion",
        help="print the script by which a shell completes shoal's command line",
        description="Print the script by which bash, zsh or fish completes verbs, options, their values and "
        "file names. The script is that of this version: write it again after an upgrade.",
        epilog="Examples. docs/install.md names the file that each shell reads:\n\n"
        "  shoal completion bash\n"
        "  shoal completion zsh\n"
        "  shoal completion fish",
    )
    parser.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=f"one of {', '.join(_SHELLS)}")
    parser.set_defaults(
        json=False,
        verbose=False,
        exit_code_of_failure=EXIT_FAILED,
        exit_code_of_interrupt=EXIT_FAILED,
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    import shtab

    from . import make_parser

    parser = make_parser()
    for verb in _with_short_descriptions(parser):
        for action in options_of(verb):
            metavar = action.metavar if isinstance(action.metavar, str) else ""
            # shtab reads this attribute of an action.
            if metavar.startswith((FILE.metavar, _PATH)):
                vars(action)["complete"] = shtab.FILE
            elif metavar.startswith(DIRECTORY.metavar):
                vars(action)["complete"] = shtab.DIRECTORY
            elif metavar and args.shell == "zsh":
                # shtab does not escape it, and behind a colon zsh expects a command.
                action.metavar = metavar.replace(":", r"\:")
    print(shtab.complete(parser, args.shell))
    return EXIT_DONE


def _with_short_descriptions(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    """Return the parsers of the verbs, each with its line of ``shoal --help`` as its description."""
    found = verbs_of(parser)
    for name, (verb, line) in found.items():
        verb.description = line or name
    return [verb for verb, _ in found.values()]
