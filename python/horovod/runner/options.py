"""The options of horovodrun as Python sees them: the parser is made from them, and arguments are written with them.

They come from options.json, which `horovodrun --print-options` prints from the launcher's own table. A test compares
the file with the program.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Option:
    """One attribute of the Namespace, and the options that set it. Unset is always None, or False for flags."""

    names: tuple[str, ...]
    dest: str
    kind: str  # "flag", "int", "mebibytes", "float", "text", "names", "two ints" or "switch"
    opposite: tuple[str, ...] = ()  # of a switch: the names that set it to False
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()
    group: str = ""  # at most one option of a group may be given
    config: str = ""  # path in the configuration file
    config_inverted: bool = False  # true in the file is False here
    variable: str = ""  # of the workers, set to the value
    variable_inverted: bool = False  # True here is 0 there
    needs: str = ""  # the variable is set only with this option
    help: str = ""
    singular: tuple[str, ...] = ()  # names of an option that takes one name; it still accepts a list

    @property
    def default(self) -> Any:
        return False if self.kind == "flag" else None

    @property
    def long_name(self) -> str:
        return next(name for name in self.names if name.startswith("--"))


def _option(rows: list[dict[str, Any]], dest_of: dict[str, str]) -> Option:
    """The option that these rows of the table describe: they set the same attribute."""
    first = rows[0]
    names = tuple(name for row in rows for name in row["names"])
    opposite = tuple(name for row in rows for name in row["opposite"])
    inverted = first["attribute_inverted"]
    least, most = first["range"] or (None, None)
    return Option(
        names=opposite if inverted else names,
        dest=first["attribute"],
        kind=first["kind"],
        opposite=names if inverted else opposite,
        least=-math.inf if least is None else least,
        most=math.inf if most is None else most,
        choices=tuple(first["choices"]),
        group=first["excludes"],
        config=first["config"],
        config_inverted=first["config_inverted"] != inverted,
        variable=first["variable"],
        variable_inverted=inverted,
        needs=dest_of[first["needs"]] if first["needs"] else "",
        help=first["help"],
        singular=tuple(name for row in rows if row["kind"] == "name" for name in row["names"]),
    )


def _options(rows: list[dict[str, Any]]) -> tuple[Option, ...]:
    by_attribute: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if row["attribute"] is not None:
            by_attribute.setdefault(row["attribute"], []).append(row)
    dest_of = {row["variable"]: row["attribute"] for row in rows}
    return tuple(_option(same, dest_of) for same in by_attribute.values())


_ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("options.json").read_text())
OPTIONS = _options(_ROWS)
# Deprecated names, with what to use instead.
DEPRECATED = {name: row["deprecated"] for row in _ROWS if row["deprecated"] for name in row["names"] + row["opposite"]}
# Other ways to use the program, which mean nothing in a description of a job.
OF_THE_PROGRAM_ALONE = frozenset(name for row in _ROWS if row["attribute"] is None for name in row["names"])


def make_parser() -> argparse.ArgumentParser:
    """A parser that accepts what horovodrun accepts."""
    parser = argparse.ArgumentParser("horovodrun", description="Starts a program once per rank and connects the ranks.")
    groups: dict[str, Any] = {}
    for option in OPTIONS:
        into: Any = parser
        if option.group:
            into = groups.setdefault(option.group, None) or parser.add_mutually_exclusive_group()
            groups[option.group] = into
        _add(into, option)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="program to run, and its arguments")
    return parser


def to_arguments(options: Any) -> list[str]:
    """The command line, without command, for the attributes of `options`."""
    arguments: list[str] = []
    for option in OPTIONS:
        value = getattr(options, option.dest, None)
        if value is None or value is option.default:
            continue
        name = option.long_name
        if option.kind == "flag":
            arguments += [name] if value else []
        elif option.kind == "switch":
            arguments.append(name if value else option.opposite[0])
        elif option.kind == "two ints":
            arguments += [name, *(str(int(each)) for each in value)]
        else:
            text = value if isinstance(value, str) or not isinstance(value, Iterable) else ",".join(sorted(value))
            arguments.append(f"{name}={text}")  # with '=', so that a value may start with a dash
    return arguments


class _Switch(argparse.Action):
    """Sets one side of a switch."""

    def __call__(self, _: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if option_string in DEPRECATED:
            warnings.warn(
                f"{option_string} is deprecated, use {DEPRECATED[option_string]}", DeprecationWarning, stacklevel=5
            )
        setattr(namespace, self.dest, self.const)


class _Names(argparse.Action):
    """A list of names; several are united. `singular` are the options that are meant for one name."""

    def __init__(self, singular: tuple[str, ...], **rest: Any) -> None:
        super().__init__(**rest)
        self._singular = singular

    def __call__(self, _: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        names = str(values).split(",")
        if option_string in self._singular and len(names) > 1:
            warnings.warn("use --network-interfaces for several interfaces", DeprecationWarning, stacklevel=5)
        setattr(namespace, self.dest, (getattr(namespace, self.dest) or set()) | set(names))


_TYPES: dict[str, type] = {"int": int, "mebibytes": int, "float": float, "text": str}


def _add(into: Any, option: Option) -> None:
    common = {"dest": option.dest, "help": option.help.replace("%", "%%")}
    if option.kind == "flag":
        into.add_argument(*option.names, action="store_true", **common)
    elif option.kind == "switch":
        # Not in a group of their own where they are in one already: argparse has no nested ones.
        pair = into if option.group else into.add_mutually_exclusive_group()
        pair.add_argument(*option.names, action=_Switch, nargs=0, const=True, default=None, **common)
        pair.add_argument(*option.opposite, action=_Switch, nargs=0, const=False, default=None, dest=option.dest)
    elif option.kind == "names":
        into.add_argument(*option.names, action=_Names, singular=option.singular, **common)
    elif option.kind == "two ints":
        into.add_argument(*option.names, type=int, nargs=2, metavar=("MIN", "MAX"), **common)
    elif option.choices:
        into.add_argument(*option.names, choices=option.choices, type=_in_case_of(option.choices), **common)
    else:
        into.add_argument(*option.names, type=_TYPES[option.kind], **common)


def _in_case_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    """Makes a word as large or small as the choices are."""
    return str.upper if choices[0].isupper() else str.lower


def unset() -> dict[str, Any]:
    """Every attribute with the value it has when its option is not given."""
    return {option.dest: option.default for option in OPTIONS}


def variables_of(options: Any) -> dict[str, str]:
    """The variables that the tuning options set for the workers."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        value = getattr(options, option.dest, None)
        if not option.variable or value is None:
            continue
        if option.needs and not getattr(options, option.needs, None):
            continue
        if option.dest == "autotune" and not value:
            continue
        if option.kind == "mebibytes":
            value = int(value) << 20
        if option.variable_inverted:
            value = not value
        found[option.variable] = str(int(value)) if isinstance(value, bool) else str(value)
    return found


def check_ranges(options: Any) -> None:
    """Raise ValueError for a value that is out of its range."""
    for option in OPTIONS:
        value = getattr(options, option.dest, None)
        if value is None or isinstance(value, str | bool | Sequence | set):
            continue
        if not option.least <= value <= option.most:
            limit = f"{option.least:g} or more" if option.most == math.inf else f"{option.least:g} to {option.most:g}"
            raise ValueError(f"{option.long_name} {value}: expected {limit}")
