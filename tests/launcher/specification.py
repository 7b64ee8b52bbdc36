"""The options of horovodrun as its specification has them, written down independently of the program's own table."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable


def _integer(rng: random.Random) -> tuple[str, str]:
    text = str(rng.randint(0, 5000))
    return text, text


def _streams(rng: random.Random) -> tuple[str, str]:
    text = str(rng.randint(1, 16))
    return text, text


def _samples(rng: random.Random) -> tuple[str, str]:
    text = str(rng.randint(1, 1000))
    return text, text


def _mebibytes(rng: random.Random) -> tuple[str, str]:
    count = rng.randint(0, 5000)
    return str(count), str(count * 1024 * 1024)


def _real(rng: random.Random) -> tuple[str, str]:
    text = rng.choice(["0", "0.5", "3", "12.75", "1e1"])
    return text, text


def _fraction(rng: random.Random) -> tuple[str, str]:
    text = rng.choice(["0", "0.25", "0.8", "1"])
    return text, text


def _path(rng: random.Random) -> tuple[str, str]:
    text = rng.choice(["/tmp/a b.json", "x.csv", "-dash", "ü.txt", "a=b"])
    return text, text


def _level(rng: random.Random) -> tuple[str, str]:
    level = rng.choice(["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"])
    return rng.choice([level, level.lower()]), level


@dataclasses.dataclass(frozen=True)
class Value:
    """An option with a value that becomes a variable of the workers."""

    option: str
    variable: str
    key: str
    draw: Callable[[random.Random], tuple[str, str]]  # what is typed, and what the variable then holds
    needs: str = ""


@dataclasses.dataclass(frozen=True)
class Pair:
    one: str  # sets the variable to 1
    zero: str
    variable: str
    key: str
    inverted: bool = False  # the key's true means 0
    needs: str = ""


AUTOTUNE = "HOROVOD_AUTOTUNE"
VALUES = [
    Value("--fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", "params.fusion_threshold_mb", _mebibytes),
    Value("--cycle-time-ms", "HOROVOD_CYCLE_TIME", "params.cycle_time_ms", _real),
    Value("--cache-capacity", "HOROVOD_CACHE_CAPACITY", "params.cache_capacity", _integer),
    Value("--autotune-log-file", "HOROVOD_AUTOTUNE_LOG", "autotune.log_file", _path, AUTOTUNE),
    Value(
        "--autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "autotune.warmup_samples", _integer, AUTOTUNE
    ),
    Value(
        "--autotune-steps-per-sample",
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        "autotune.steps_per_sample",
        _samples,
        AUTOTUNE,
    ),
    Value(
        "--autotune-bayes-opt-max-samples",
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        "autotune.bayes_opt_max_samples",
        _samples,
        AUTOTUNE,
    ),
    Value(
        "--autotune-gaussian-process-noise",
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        "autotune.gaussian_process_noise",
        _fraction,
        AUTOTUNE,
    ),
    Value("--timeline-filename", "HOROVOD_TIMELINE", "timeline.filename", _path),
    Value(
        "--stall-check-warning-time-seconds",
        "HOROVOD_STALL_CHECK_TIME_SECONDS",
        "stall_check.warning_time_seconds",
        _integer,
    ),
    Value(
        "--stall-check-shutdown-time-seconds",
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        "stall_check.shutdown_time_seconds",
        _integer,
    ),
    Value("--num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", "library_options.num_nccl_streams", _streams),
    Value("--thread-affinity", "HOROVOD_THREAD_AFFINITY", "library_options.thread_affinity", _integer),
    Value("--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", "library_options.gloo_timeout_seconds", _integer),
    Value("--log-level", "HOROVOD_LOG_LEVEL", "logging.level", _level),
]
PAIRS = [
    Pair(
        "--hierarchical-allreduce",
        "--no-hierarchical-allreduce",
        "HOROVOD_HIERARCHICAL_ALLREDUCE",
        "params.hierarchical_allreduce",
    ),
    Pair(
        "--hierarchical-allgather",
        "--no-hierarchical-allgather",
        "HOROVOD_HIERARCHICAL_ALLGATHER",
        "params.hierarchical_allgather",
    ),
    Pair("--torus-allreduce", "--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "params.torus_allreduce"),
    Pair("--autotune", "--no-autotune", AUTOTUNE, "autotune.enabled"),
    Pair(
        "--timeline-mark-cycles",
        "--no-timeline-mark-cycles",
        "HOROVOD_TIMELINE_MARK_CYCLES",
        "timeline.mark_cycles",
        needs="HOROVOD_TIMELINE",
    ),
    Pair("--no-stall-check", "--stall-check", "HOROVOD_STALL_CHECK_DISABLE", "stall_check.enabled", inverted=True),
    Pair(
        "--mpi-threads-disable",
        "--no-mpi-threads-disable",
        "HOROVOD_MPI_THREADS_DISABLE",
        "library_options.mpi_threads_disable",
    ),
    Pair(
        "--log-without-timestamp",
        "--log-with-timestamp",
        "HOROVOD_LOG_HIDE_TIME",
        "logging.with_timestamp",
        inverted=True,
    ),
]

# Options that do not become variables: spellings, a drawn value (none for a flag), and the name --dry-run has for it.
OTHERS: list[tuple[list[str], Callable[[random.Random], object] | None, str]] = [
    (["-p", "--ssh-port"], lambda rng: rng.randint(1, 65535), "ssh-port"),
    (["-i", "--ssh-identity-file"], lambda rng: rng.choice(["id", "/a b/id_rsa"]), "ssh-identity-file"),
    (["--output-filename"], lambda rng: rng.choice(["out", "/tmp/o o"]), "output-filename"),
    (["--disable-cache"], None, "disable-cache"),
    (["--verbose"], None, "verbose"),
    (["--ssh-strict"], None, "ssh-strict"),
    (["--tls"], None, "tls"),
    (["--bind-to"], lambda rng: rng.choice(["core", "numa", "none"]), "bind-to"),
    (["--slots-per-host"], lambda rng: rng.randint(1, 9), "slots-per-host"),
    (["--elastic-timeout"], lambda rng: rng.randint(0, 900), "elastic-timeout"),
    (["--reset-limit"], lambda rng: rng.randint(0, 9), "reset-limit"),
    (["--min-np", "--min-num-proc"], lambda rng: rng.randint(1, 2), "min-num-proc"),
    (["--max-np", "--max-num-proc"], lambda rng: rng.randint(4, 9), "max-num-proc"),
    (
        ["--blacklist-cooldown-range"],
        lambda rng: [rng.randint(1, 50), rng.randint(50, 3600)],
        "blacklist-cooldown-range",
    ),
    (["--mpi-args"], lambda rng: rng.choice(["-x A", "--mca btl tcp"]), "mpi-args"),
    (["--binding-args"], lambda rng: "-bind-to none", "binding-args"),
]


@dataclasses.dataclass
class Line:
    """A command line and what it means."""

    words: list[str]
    variables: dict[str, str]
    options: dict[str, object]
    config: dict[str, dict[str, str]]  # contents of --config-file, by section


def _without_needless(variables: dict[str, str]) -> dict[str, str]:
    needs = {row.variable: row.needs for row in [*VALUES, *PAIRS] if row.needs}
    return {
        name: value for name, value in variables.items() if name not in needs or variables.get(needs[name], "0") != "0"
    }


def draw_line(rng: random.Random) -> Line:
    words, given, file = [], {}, {}
    config: dict[str, dict[str, str]] = {}

    def write(key: str, text: str) -> None:
        section, name = key.split(".")
        config.setdefault(section, {})[name] = text

    for value in rng.sample(VALUES, rng.randint(0, 6)):
        typed, meant = value.draw(rng)
        words.append([f"{value.option}={typed}"] if rng.random() < 0.5 else [value.option, typed])
        given[value.variable] = meant
    for pair in rng.sample(PAIRS, rng.randint(0, 4)):
        on = rng.random() < 0.6
        words.append([pair.one if on else pair.zero])
        given[pair.variable] = "1" if on else "0"
    for value in rng.sample(VALUES, rng.randint(0, 6)):
        typed, file[value.variable] = value.draw(rng)
        write(value.key, f'"{typed}"' if value.draw is _path else typed)
    for pair in rng.sample(PAIRS, rng.randint(0, 4)):
        on = rng.random() < 0.6
        write(pair.key, rng.choice(["true", "yes", "on", "True"] if on else ["false", "no", "off", "FALSE"]))
        file[pair.variable] = "1" if on != pair.inverted else "0"
    options: dict[str, object] = {}
    for spellings, draw, name in rng.sample(OTHERS, rng.randint(0, 6)):
        option, drawn = rng.choice(spellings), draw(rng) if draw else True
        options[name] = drawn
        if draw is None:
            words.append([option])
        elif isinstance(drawn, list):
            words.append([option, *map(str, drawn)])
        else:
            attached = option + ("=" if option.startswith("--") else "") + str(drawn)
            words.append([option, str(drawn)] if rng.random() < 0.5 and name != "mpi-args" else [attached])
    if rng.random() < 0.5:
        names = rng.sample(["eth0", "eth1", "ib0", "lo"], rng.randint(1, 4))
        words.append([f"--network-interfaces={','.join(names)}"])
        options["network-interfaces"] = names
    rng.shuffle(words)
    variables = _without_needless({**file, **given})
    return Line([word for group in words for word in group], variables, options, config)
