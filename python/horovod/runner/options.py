"""The options of horovodrun as Python sees them: one row each, from which the parser is made and to which arguments go.

The program has the last word on all of them; this table is for those who want a Namespace. A test compares it with
`horovodrun --help`.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One option, or the two of a switch. Unset is always None, or False for flags."""

    names: tuple[str, ...]
    dest: str
    kind: str  # "flag", "int", "float", "text", "list", "two ints" or "switch"
    opposite: tuple[str, ...] = ()  # of a switch: the names that set it to False
    least: float = -math.inf
    most: float = math.inf
    choices: tuple[str, ...] = ()
    group: str = ""  # at most one option of a group may be given
    config: str = ""  # path in the configuration file
    variable: str = ""  # of the workers, set to the value
    needs: str = ""  # the variable is set only with this option
    help: str = ""

    @property
    def default(self) -> Any:
        return False if self.kind == "flag" else None

    @property
    def long_name(self) -> str:
        return next(name for name in self.names if name.startswith("--"))


def _tunable(name: str, kind: str, config: str, variable: str, help: str, **rest: Any) -> Option:
    return Option((name,), name[2:].replace("-", "_"), kind, config=config, variable=variable, help=help, **rest)


def _switch(name: str, config: str, variable: str, help: str, **rest: Any) -> Option:
    return _tunable(name, "switch", config, variable, help, opposite=(f"--no-{name[2:]}",), **rest)


LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL")
TIME_STAMPS = "timestamps"

OPTIONS = (
    Option(("-v", "--version"), "version", "flag", help="print the version"),
    Option(("-np", "-n", "--num-proc"), "num_proc", "int", help="number of ranks"),
    Option(("-cb", "--check-build"), "check_build", "flag", help="print what was found on this machine"),
    Option(("--disable-cache",), "disable_cache", "flag", help="do not remember which hosts answered"),
    Option(("--start-timeout",), "start_timeout", "int", help="seconds in which all ranks must have met"),
    Option(
        ("--network-interfaces", "--network-interface"), "nics", "list", help="use these network interfaces: NAME,..."
    ),
    Option(("--output-filename",), "output_filename", "text", help="directory for each rank's output"),
    Option(("--verbose",), "verbose", "flag", help="say more"),
    Option(("--config-file",), "config_file", "text", help="YAML file with options"),
    Option(("--bind-to",), "bind_to", "text", choices=("core", "numa", "none"), help="bind every rank to its share"),
    Option(("--ssh-strict",), "ssh_strict", "flag", help="only hosts whose keys ssh knows already"),
    Option(("--tls",), "tls", "flag", help="encrypt all connections between hosts"),
    Option(("--agents",), "agents", "int", help="wait for this many agents instead of using ssh"),
    Option(("--rendezvous",), "rendezvous", "text", help="where to listen for agents: HOST:PORT"),
    Option(("--key-file",), "key_file", "text", help="the key that launcher and agents share"),
    Option(("-p", "--ssh-port"), "ssh_port", "int", help="port of ssh"),
    Option(("-i", "--ssh-identity-file"), "ssh_identity_file", "text", help="private key for ssh"),
    _tunable(
        "--fusion-threshold-mb",
        "int",
        "params.fusion_threshold_mb",
        "HOROVOD_FUSION_THRESHOLD",
        "fuse up to this many MiB",
        least=0,
    ),
    _tunable(
        "--cycle-time-ms",
        "float",
        "params.cycle_time_ms",
        "HOROVOD_CYCLE_TIME",
        "milliseconds to wait for tensors",
        least=0,
    ),
    _tunable(
        "--cache-capacity",
        "int",
        "params.cache_capacity",
        "HOROVOD_CACHE_CAPACITY",
        "plans remembered; 0: none",
        least=0,
    ),
    _switch(
        "--hierarchical-allreduce",
        "params.hierarchical_allreduce",
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
        "reduce inside each host first",
    ),
    _switch(
        "--hierarchical-allgather",
        "params.hierarchical_allgather",
        "HOROVOD_HIERARCHICAL_ALLGATHER",
        "gather inside each host first",
    ),
    _switch("--torus-allreduce", "params.torus_allreduce", "HOROVOD_TORUS_ALLREDUCE", "reduce along two dimensions"),
    _switch("--autotune", "autotune.enabled", "HOROVOD_AUTOTUNE", "find good values of the knobs while training"),
    _tunable(
        "--autotune-log-file",
        "text",
        "autotune.log_file",
        "HOROVOD_AUTOTUNE_LOG",
        "CSV file of what was tried",
        needs="autotune",
    ),
    _tunable(
        "--autotune-warmup-samples",
        "int",
        "autotune.warmup_samples",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
        "samples that are thrown away",
        least=0,
        needs="autotune",
    ),
    _tunable(
        "--autotune-steps-per-sample",
        "int",
        "autotune.steps_per_sample",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        "steps of one sample",
        least=0,
        needs="autotune",
    ),
    _tunable(
        "--autotune-bayes-opt-max-samples",
        "int",
        "autotune.bayes_opt_max_samples",
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        "samples until the best values are kept",
        least=0,
        needs="autotune",
    ),
    _tunable(
        "--autotune-gaussian-process-noise",
        "float",
        "autotune.gaussian_process_noise",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        "how noisy samples are taken to be",
        least=0,
        most=1,
        needs="autotune",
    ),
    Option(("--min-np", "--min-num-proc"), "min_num_proc", "int", help="elastic: fewest ranks"),
    Option(("--max-np", "--max-num-proc"), "max_num_proc", "int", help="elastic: most ranks"),
    Option(("--slots-per-host",), "slots", "int", help="elastic: ranks of a host that does not say"),
    Option(("--elastic-timeout",), "elastic_timeout", "int", help="elastic: seconds to wait for enough slots"),
    Option(("--reset-limit",), "reset_limit", "int", help="elastic: how often the world may change"),
    Option(("--blacklist-cooldown-range",), "cooldown_range", "two ints", help="elastic: seconds, MIN MAX"),
    _tunable("--timeline-filename", "text", "timeline.filename", "HOROVOD_TIMELINE", "write a trace"),
    _switch(
        "--timeline-mark-cycles",
        "timeline.mark_cycles",
        "HOROVOD_TIMELINE_MARK_CYCLES",
        "mark the start of every cycle",
        needs="timeline_filename",
    ),
    Option(
        ("--no-stall-check",),
        "no_stall_check",
        "switch",
        ("--stall-check",),
        config="stall_check.enabled",
        variable="HOROVOD_STALL_CHECK_DISABLE",
        help="do not look for stalled ranks",
    ),
    _tunable(
        "--stall-check-warning-time-seconds",
        "int",
        "stall_check.warning_time_seconds",
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        "warn when a rank is missing for so long",
        least=0,
    ),
    _tunable(
        "--stall-check-shutdown-time-seconds",
        "int",
        "stall_check.shutdown_time_seconds",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "stop the job when a rank is missing for so long",
        least=0,
    ),
    _switch(
        "--mpi-threads-disable",
        "library_options.mpi_threads_disable",
        "HOROVOD_MPI_THREADS_DISABLE",
        "start MPI without thread support",
    ),
    Option(("--mpi-args",), "mpi_args", "text", help="more arguments of mpirun; write --mpi-args='...'"),
    Option(("--tcp",), "tcp_flag", "flag", help="do not use InfiniBand"),
    Option(("--binding-args",), "binding_args", "text", help="how mpirun binds processes"),
    _tunable(
        "--num-nccl-streams",
        "int",
        "library_options.num_nccl_streams",
        "HOROVOD_NUM_NCCL_STREAMS",
        "NCCL streams",
        least=0,
    ),
    _tunable(
        "--thread-affinity",
        "text",
        "library_options.thread_affinity",
        "HOROVOD_THREAD_AFFINITY",
        "core of the communication thread, for each local rank",
    ),
    _tunable(
        "--gloo-timeout-seconds",
        "int",
        "library_options.gloo_timeout_seconds",
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        "seconds a connection may take",
        least=0,
    ),
    _tunable("--log-level", "text", "logging.level", "HOROVOD_LOG_LEVEL", "how much is logged", choices=LEVELS),
    Option(
        ("--log-with-timestamp", "--no-log-hide-timestamp"),
        "log_with_timestamp",
        "switch",
        ("--log-without-timestamp", "--log-hide-timestamp"),
        group=TIME_STAMPS,
        config="logging.with_timestamp",
        variable="HOROVOD_LOG_HIDE_TIME",
        help="write the time into log lines",
    ),
    Option(
        ("-prefix-timestamp", "--prefix-output-with-timestamp"),
        "prefix_output_with_timestamp",
        "flag",
        group=TIME_STAMPS,
        help="start every line of output with the time",
    ),
    Option(("-H", "--hosts"), "hosts", "text", group="hosts", help="where to run: HOST:SLOTS,..."),
    Option(
        ("-hostfile", "--hostfile"), "hostfile", "text", group="hosts", help="file with a host and its slots a line"
    ),
    Option(
        ("--host-discovery-script",),
        "host_discovery_script",
        "text",
        group="hosts",
        help="elastic: program that prints hosts",
    ),
    Option(("--gloo",), "use_gloo", "flag", group="controller", help="use the built-in transport"),
    Option(("--mpi",), "use_mpi", "flag", group="controller", help="start with mpirun"),
    Option(("--jsrun",), "use_jsrun", "flag", group="controller", help="start with jsrun"),
)
DEPRECATED = ("--network-interface", "--log-hide-timestamp", "--no-log-hide-timestamp")
# Other ways to use the program, which mean nothing in a description of a job.
OF_THE_PROGRAM_ALONE = frozenset(
    {"--agent", "--build-mpi", "--doctor", "--dry-run", "--json", "--print-completion", "--print-man"}
)


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
    """The command line, without command, that says what the attributes of `options` say."""
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


class _Deprecated(argparse.Action):
    def __call__(self, _: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if option_string in DEPRECATED[1:]:
            warnings.warn(
                f"{option_string} is deprecated, use --log-without-timestamp", DeprecationWarning, stacklevel=5
            )
        setattr(namespace, self.dest, self.const)


class _Names(argparse.Action):
    """A list of names; several are united."""

    def __call__(self, _: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        names = str(values).split(",")
        if option_string == DEPRECATED[0] and len(names) > 1:
            warnings.warn("use --network-interfaces for several interfaces", DeprecationWarning, stacklevel=5)
        setattr(namespace, self.dest, (getattr(namespace, self.dest) or set()) | set(names))


def _add(into: Any, option: Option) -> None:
    common = {"dest": option.dest, "help": option.help}
    if option.kind == "flag":
        into.add_argument(*option.names, action="store_true", **common)
    elif option.kind == "switch":
        # Not in a group of their own where they are in one already: argparse has no nested ones.
        pair = into if option.group else into.add_mutually_exclusive_group()
        pair.add_argument(*option.names, action=_Deprecated, nargs=0, const=True, default=None, **common)
        pair.add_argument(*option.opposite, action=_Deprecated, nargs=0, const=False, default=None, dest=option.dest)
    elif option.kind == "list":
        into.add_argument(*option.names, action=_Names, **common)
    elif option.kind == "two ints":
        into.add_argument(*option.names, type=int, nargs=2, metavar=("MIN", "MAX"), **common)
    elif option.choices:
        into.add_argument(*option.names, choices=option.choices, type=_in_case_of(option.choices), **common)
    else:
        into.add_argument(*option.names, type={"int": int, "float": float, "text": str}[option.kind], **common)


def _in_case_of(choices: tuple[str, ...]) -> Callable[[str], str]:
    """Makes a word as large or small as the choices are."""
    return str.upper if choices[0].isupper() else str.lower


def unset() -> dict[str, Any]:
    """Every attribute with the value it has when its option is not given."""
    return {option.dest: option.default for option in OPTIONS}


def variables_of(options: Any) -> dict[str, str]:
    """What the tuning options put into the environment of the workers."""
    found: dict[str, str] = {}
    for option in OPTIONS:
        value = getattr(options, option.dest, None)
        if not option.variable or value is None:
            continue
        if option.needs and not getattr(options, option.needs, None):
            continue
        if option.dest == "autotune" and not value:
            continue
        if option.dest == "fusion_threshold_mb":
            value = int(value) << 20
        if option.dest == "log_with_timestamp":
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
