"""``shoal completion``: the script by which a shell completes shoal's verbs and options."""

from __future__ import annotations

import argparse
from importlib import resources

from ..exit_codes import EXIT_DONE, EXIT_FAILED
from .options import Subparsers

__all__ = ["SHELLS", "add_parser", "run"]

SHELLS = ("bash", "zsh", "fish")


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
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(
        json=False,
        verbose=False,
        exit_code_of_failure=EXIT_FAILED,
        exit_code_of_interrupt=EXIT_FAILED,
    )


def run(args: argparse.Namespace) -> int:
    """Run the verb; return the exit code."""
    # docs/generate_cli.py writes the scripts.
    script = resources.files(__package__) / "completion_scripts" / f"shoal.{args.shell}"
    print(script.read_text(encoding="utf-8"))
    return EXIT_DONE
