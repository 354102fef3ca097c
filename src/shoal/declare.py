"""
Options, each declared once.

An option is a field of a frozen dataclass: :func:`option` gives it a default, a kind, its help and the group
of its help. The command line comes from this declaration (:func:`add_options`), and docs/cli.md from that. So
do a TOML file and environment variables (:mod:`shoal.cli.layers`). Python users call the constructor of the
dataclass (:func:`read_fields`).

A :class:`Kind` reads a value, a text or Python's own, and refuses it with the option's name. Every message
has the name of the command line, such as ``--fetch-buffer-bytes``.
"""

from __future__ import annotations

import argparse
import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any

__all__ = ["Declared", "Kind", "add_options", "declared", "given", "option", "pick", "read_fields"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kind:
    """
    The form of an option's values, and how to read them.

    Attributes:
        read: Reads a value, and raises a ConfigError. Its arguments are the option's name and the value.
        metavar: The word for the value in the help. A flag has none.
        choices: The only values; empty for any.
        is_flag: Whether the option has no value on the command line.
        is_list: Whether the value has parts, separated by commas. A TOML file may have an array.
        is_path: Whether the value is a path. In a TOML file, it is relative to the file.
        is_table: Whether the option may be repeated, as ``KEY=VALUE``. A TOML file has a table.
        bare: The value of an option that is given without one; empty if it needs one.

    """

    read: Callable[[str, Any], Any]
    metavar: str = ""
    choices: tuple[str, ...] = ()
    is_flag: bool = False
    is_list: bool = False
    is_path: bool = False
    is_table: bool = False
    bare: str = ""


@dataclass(frozen=True, slots=True)
class Declared:
    """
    One option of a command; that in a field's metadata has no default.

    Attributes:
        field: The name of its field.
        name: Its name, without the dashes.
        default: The field's default.
        shown: The words for the default in the help; empty for the default itself.
        required: Whether the command needs it.

    """

    field: str
    name: str
    kind: Kind
    help: str
    group: str
    default: Any = None
    shown: str = ""
    required: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def option(self) -> str:
        """The option as the command line has it."""
        return f"--{self.name}"

    @property
    def full_help(self) -> str:
        """The help, and the default unless it is nothing."""
        default = self.shown or (_shown(self.default) if self.default else "")
        return f"{self.help} (default: {default})" if default else self.help


def option(
    kind: Kind,
    help: str,
    *,
    default: Any = MISSING,
    group: str = "",
    name: str = "",
    aliases: tuple[str, ...] = (),
) -> Any:
    """
    Return the field of a dataclass that is an option.

    Args:
        kind: The kind of its values.
        help: Its effect, for ``--help`` and docs/cli.md.
        default: Its default; without one, every command that has the option requires it. A flag is off.
        group: The heading in the help.
        name: Its name; by default that of the field, with dashes.
        aliases: Other names, as the command line has them.

    """
    if kind.is_flag and default is MISSING:
        default = False
    stated = Declared("", name, kind, help, group, aliases=aliases)
    return field(default=default, metadata={"option": stated})


def declared(options: type, **changes: Any) -> tuple[Declared, ...]:
    """Return the options of a dataclass, in the order of its fields; ``changes`` apply to each."""
    return tuple(_declared(each, **changes) for each in fields(options) if "option" in each.metadata)


def pick(options: type, *names: str, **changes: Any) -> tuple[Declared, ...]:
    """Return some options of a dataclass, in this order."""
    found = {each.field: each for each in declared(options, **changes)}
    return tuple(found[name] for name in names)


def _declared(each: Field[Any], **changes: Any) -> Declared:
    stated: Declared = each.metadata["option"]
    is_required = each.default is MISSING
    values: dict[str, Any] = {
        "name": stated.name or each.name.replace("_", "-"),
        "default": None if is_required else each.default,
        "required": is_required,
    }
    return replace(stated, field=each.name, **(values | changes))


def given(options: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return what a user gave for a dataclass's options, as values of their kinds.

    Args:
        values: Values by the fields' names. ``None`` stands for the default; other names are ignored.

    Raises:
        ConfigError: A value cannot be used.

    """
    return {
        each.field: each.kind.read(each.option, values[each.field])
        for each in declared(options)
        if values.get(each.field) is not None
    }


def read_fields(options: Any) -> None:
    """
    Let a frozen dataclass have what its constructor was given for its options, as values of their kinds.

    Raises:
        ConfigError: A value cannot be used.

    """
    for each in declared(type(options)):
        value = getattr(options, each.field)
        if value is not None:
            object.__setattr__(options, each.field, each.kind.read(each.option, value))


def add_options(parser: argparse.ArgumentParser, *options: Iterable[Declared]) -> None:
    """
    Add options to a command's parser, each once. Each action has its declaration as ``declared``.

    Args:
        options: The first ones come first in the help.

    """
    groups: dict[str, argparse._ArgumentGroup] = {each.title or "": each for each in parser._action_groups}
    once = {each.name: each for some in reversed(options) for each in some}
    in_order = dict.fromkeys(each.name for some in options for each in some)
    for each in (once[name] for name in in_order):
        if each.group not in groups:
            groups[each.group] = parser.add_argument_group(each.group)
        _add(groups[each.group], each)


def _add(group: argparse._ArgumentGroup, each: Declared) -> None:
    names = (each.option, *each.aliases)
    more: dict[str, Any] = {"dest": each.field, "help": each.full_help}
    kind = each.kind
    if kind.is_flag:
        action = group.add_argument(*names, action="store_true", **more)
        group.add_argument(f"--no-{each.name}", dest=each.field, action="store_false", help=argparse.SUPPRESS)
    elif kind.is_table:
        action = group.add_argument(*names, action="append", metavar=kind.metavar, **more)
    else:
        action = group.add_argument(
            *names,
            required=each.required,
            metavar=None if kind.choices else kind.metavar,
            choices=kind.choices or None,
            nargs="?" if kind.bare else None,
            const=kind.bare or None,
            type=str.lower if kind.bare else str,
            **more,
        )
    vars(action)["declared"] = each


def _shown(default: object) -> str:
    """Return a default as the command line takes it."""
    match default:
        case enum.Enum():
            return str(default.value)
        case float():
            return f"{default:g}"
        case int() if default % _MIB == 0:
            return f"{default // _MIB}m"
        case frozenset() | tuple():
            return ",".join(_shown(each) for each in default)
    return str(default)
