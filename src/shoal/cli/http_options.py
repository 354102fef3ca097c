"""Options of HTTP access, for each verb that serves metrics or a page."""

from __future__ import annotations

import argparse

__all__ = ["add_http_options"]


def add_http_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options to a verb, or to a group of its options."""
    parser.add_argument(
        "--http-host",
        dest="http_hosts",
        metavar="NAME[,NAME...]",
        help="names that requests may have in the Host header besides localhost, addresses and this "
        "machine's name, such as those of proxies",
    )
    parser.add_argument(
        "--http-token-file",
        metavar="FILE",
        help="answer only requests with the token in this file (mode 0600): as a bearer token, or as the "
        "password that a browser asks for",
    )
