"""The configuration file (YAML) and the variables of the workers, as the options of horovodrun define them."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from typing import Any

import yaml

from horovod.runner import options

CONTROLLERS = ("gloo", "mpi")


def read_config(path: str) -> dict[str, Any]:
    """The contents of a configuration file; ValueError if it has another form."""
    with open(path) as file:
        try:
            config = yaml.safe_load(file) or {}
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is not YAML: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: expected sections such as params:, not a {type(config).__name__}")
    return config


def set_args_from_config(args: Any, config: dict[str, Any], override_args: Collection[str]) -> None:
    """Set the attributes of `args` that the file has a value for, except those named in `override_args`."""
    for option in options.OPTIONS:
        if not option.config or option.dest in override_args:
            continue
        section, _, name = option.config.partition(".")
        values = config.get(section)
        value = values.get(name) if isinstance(values, dict) else None
        if value is not None:
            setattr(args, option.dest, not value if option.config_inverted else value)
    controller = config.get("controller")
    if controller is None:
        return
    if controller not in CONTROLLERS:
        raise ValueError(f"controller: {controller}: expected {' or '.join(CONTROLLERS)}")
    if not (args.use_gloo or args.use_mpi):
        args.use_gloo, args.use_mpi = controller == "gloo", controller == "mpi"


def validate_config_args(args: Any) -> None:
    """Raise ValueError for a value that is out of its range."""
    options.check_ranges(args)


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Add the tuning options of `args` to `env`, and return it."""
    env.update(options.variables_of(args))
    return env
