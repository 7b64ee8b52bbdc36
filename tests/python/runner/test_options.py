"""The options as Python sees them: a Namespace, the variables of the workers, and the way back to a command line."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import horovod
from horovod.runner import _HorovodArgs, launch, options, program
from horovod.runner.common.util import config_parser

COMMAND = ["python", "train.py", "--epochs", "3"]
LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def parse(*arguments: str) -> argparse.Namespace:
    return launch.parse_args([*arguments, *COMMAND])


def known_names() -> set[str]:
    return {name for option in options.OPTIONS for name in (*option.names, *option.opposite)}


def test_every_option_of_the_program_is_known() -> None:
    """Fails when horovodrun gets an option that options.py does not have."""
    text = subprocess.run([program.find(), "--help"], capture_output=True, text=True, check=True).stdout
    listed = {name for line in text.splitlines() if line.startswith("  -") for name in LONG_OPTION.findall(line)}
    assert "--num-proc" in listed
    assert listed - known_names() - {"--help"} - options.OF_THE_PROGRAM_ALONE == set()


@pytest.mark.parametrize("name", sorted(known_names()))
def test_every_option_is_known_to_the_program(name: str) -> None:
    """A wrong or missing value, or an option that is still to come, is another complaint."""
    result = subprocess.run([program.find(), name], capture_output=True, text=True)
    assert "unknown option" not in result.stderr


def test_defaults() -> None:
    args = parse("-np", "2")
    assert args.num_proc == 2
    assert args.command == COMMAND
    rest = {name: value for name, value in vars(args).items() if name not in ("num_proc", "command")}
    assert {name for name, value in rest.items() if value is not None and value is not False} == set()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("-n 3", {"num_proc": 3}),
        ("--num-proc=3", {"num_proc": 3}),
        ("-np 2 -H a:1,b:1", {"hosts": "a:1,b:1"}),
        ("-np 2 -hostfile f", {"hostfile": "f"}),
        ("-np 2 -p 2222 -i key", {"ssh_port": 2222, "ssh_identity_file": "key"}),
        ("-np 2 --network-interfaces a,b --network-interface c", {"nics": {"a", "b", "c"}}),
        ("-np 2 --min-np 1 --max-np 4 --slots-per-host 2", {"min_num_proc": 1, "max_num_proc": 4, "slots": 2}),
        ("-np 2 --blacklist-cooldown-range 3 9", {"cooldown_range": [3, 9]}),
        ("-np 2 --no-autotune", {"autotune": False}),
        ("-np 2 --autotune", {"autotune": True}),
        ("-np 2 --stall-check", {"no_stall_check": False}),
        ("-np 2 --log-without-timestamp", {"log_with_timestamp": False}),
        ("-np 2 --log-level debug", {"log_level": "DEBUG"}),
        ("-np 2 --mpi-args=-x --mpi --tcp", {"mpi_args": "-x", "use_mpi": True, "tcp_flag": True}),
        ("-np 2 -prefix-timestamp", {"prefix_output_with_timestamp": True}),
    ],
)
def test_values(line: str, expected: dict[str, object]) -> None:
    args = parse(*line.split())
    assert {name: getattr(args, name) for name in expected} == expected
    assert args.command == COMMAND


@pytest.mark.parametrize(
    "line",
    [
        "",
        "-np two",
        "-np 2 --no-such-option",
        "-np 2 --autotune --no-autotune",
        "-np 2 --gloo --mpi",
        "-np 2 -H a:1 -hostfile f",
        "-np 2 --log-with-timestamp --log-without-timestamp",
        "-np 2 --log-with-timestamp -prefix-timestamp",
        "-np 2 --log-level LOUD",
    ],
)
def test_wrong_lines_end_with_code_two(line: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(*line.split())
    assert caught.value.code == 2


@pytest.mark.parametrize(
    "line", ["--fusion-threshold-mb -1", "--cycle-time-ms -0.5", "--autotune-gaussian-process-noise 1.5"]
)
def test_values_out_of_range(line: str) -> None:
    with pytest.raises(ValueError, match=line.split()[0]):
        parse("-np", "2", *line.replace(" ", "=").split())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        launch.parse_args(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"{horovod.__version__}\n"


def test_deprecated_spellings() -> None:
    with pytest.warns(DeprecationWarning, match="--log-hide-timestamp is deprecated"):
        assert parse("-np", "2", "--log-hide-timestamp").log_with_timestamp is False
    with pytest.warns(DeprecationWarning, match="--network-interfaces"):
        assert parse("-np", "2", "--network-interface", "a,b").nics == {"a", "b"}


OFF = ("HOROVOD_AUTOTUNE", "0")
LINES = [
    "--fusion-threshold-mb 3 --cycle-time-ms 0.25 --cache-capacity 0",
    "--hierarchical-allreduce --no-hierarchical-allgather --torus-allreduce",
    "--autotune --autotune-log-file a.csv --autotune-gaussian-process-noise 0.5",
    "--no-autotune --autotune-log-file a.csv",
    "--timeline-filename t.json --timeline-mark-cycles",
    "--timeline-mark-cycles",
    "--no-stall-check --stall-check-warning-time-seconds 9",
    "--stall-check --stall-check-shutdown-time-seconds 9",
    "--log-level debug --log-with-timestamp",
    "--log-without-timestamp --num-nccl-streams 2 --thread-affinity 1 --gloo-timeout-seconds 8",
    "--mpi-threads-disable",
]


def variables_by_program(arguments: list[str]) -> dict[str, str]:
    """What a worker finds that horovodrun starts with these arguments."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("HOROVOD_")}
    show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    result = subprocess.run(
        [program.find(), *arguments, *show], env=outside, capture_output=True, text=True, check=True
    )
    tunable = {option.variable for option in options.OPTIONS}
    found = json.loads(result.stdout.partition(":")[2])
    # HOROVOD_AUTOTUNE=0 means the same as unset; the program sets it if the option was given.
    return {name: value for name, value in found.items() if name in tunable and (name, value) != OFF}


@pytest.mark.parametrize("line", LINES)
def test_python_and_program_mean_the_same(line: str) -> None:
    """The variables by Python are those that the program sets, also when the Namespace became a line again."""
    args = launch.parse_args(["-np", "1", *line.split(), "true"])
    variables = options.variables_of(args)
    assert variables_by_program(["-np", "1", *line.split()]) == variables
    assert variables_by_program(options.to_arguments(args)) == variables


def dry_run(arguments: list[str]) -> dict[str, object]:
    """What the program makes of a line."""
    command = [program.find(), "--dry-run", *arguments, *COMMAND]
    described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(json.loads(described))


@pytest.mark.parametrize(
    "line",
    [
        *LINES,
        "-H a:1,b:2 --disable-cache --start-timeout 5 --network-interfaces a,b --output-filename d --verbose",
        "-H a,b:2 -p 3 -i k --ssh-strict --tls --bind-to core",
        "--agents 2 --rendezvous here:4000 --key-file k",
        "-H a:4,b:4 --min-np 1 --max-np 4 --elastic-timeout 9 --reset-limit 1 --blacklist-cooldown-range 3 9",
        "--gloo --tcp -prefix-timestamp",
    ],
)
def test_program_understands_what_python_makes_of_a_line(line: str) -> None:
    words = ["-np", "2", *line.split()]
    assert dry_run(options.to_arguments(launch.parse_args([*words, *COMMAND]))) == dry_run(words)


def test_round_trip_through_a_line() -> None:
    line = (
        "-np 2 --disable-cache --start-timeout 5 --network-interfaces a,b --output-filename d --verbose -p 3 -i k "
        "--min-np 1 --max-np 4 --slots-per-host 2 --elastic-timeout 9 --reset-limit 1 --blacklist-cooldown-range 3 9 "
        "--mpi-args=-x --tcp --binding-args=-y --host-discovery-script s --mpi --no-autotune --log-without-timestamp"
    )
    args = launch.parse_args([*line.split(), *COMMAND])
    assert vars(launch.parse_args([*options.to_arguments(args), *COMMAND])) == vars(args)


CONFIG = """
controller: gloo
params:
  fusion_threshold_mb: 32
  cycle_time_ms: 2.5
  hierarchical_allreduce: true
autotune:
  enabled: false
timeline:
  filename: trace.json
stall_check:
  enabled: false
  warning_time_seconds: 120
library_options:
  gloo_timeout_seconds: 7
logging:
  level: INFO
  with_timestamp: true
  hide_timestamp: true
"""


def test_config_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    args = parse("-np", "2", "--cycle-time-ms", "9", "--stall-check", "--config-file", str(file))
    assert (args.fusion_threshold_mb, args.cycle_time_ms, args.hierarchical_allreduce) == (32, 9.0, True)
    assert (args.no_stall_check, args.stall_check_warning_time_seconds) == (False, 120)  # the command line wins
    assert (args.log_level, args.log_with_timestamp, args.use_gloo) == ("INFO", True, True)
    assert parse("-np", "2", "--config-file", str(file)).no_stall_check is True
    assert config_parser.set_env_from_args({}, args) == {
        "HOROVOD_FUSION_THRESHOLD": str(32 << 20),
        "HOROVOD_CYCLE_TIME": "9.0",
        "HOROVOD_HIERARCHICAL_ALLREDUCE": "1",
        "HOROVOD_TIMELINE": "trace.json",
        "HOROVOD_STALL_CHECK_DISABLE": "0",
        "HOROVOD_STALL_CHECK_TIME_SECONDS": "120",
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "7",
        "HOROVOD_LOG_LEVEL": "INFO",
        "HOROVOD_LOG_HIDE_TIME": "0",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("controller: tcp", "controller: tcp: expected gloo or mpi"),
        ("params: {cache_capacity: -1}", "--cache-capacity -1"),
        ("- a\n- b", "expected sections"),
        ("a: [", "is not YAML"),
    ],
)
def test_wrong_config_files(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(words)):
        parse("-np", "2", "--config-file", str(file))


@pytest.mark.parametrize("module", ["horovod.runner", "horovod.runner.launch"])
def test_module_is_the_program(module: str) -> None:
    for arguments, code in ((["--version"], 0), (["-np", "2", "echo", "hi"], 0), (["--nonsense"], 2), ([], 2)):
        both = [
            subprocess.run([*command, *arguments], capture_output=True)
            for command in ([sys.executable, "-m", module], [program.find()])
        ]
        assert both[0].returncode == both[1].returncode == code
        assert sorted(both[0].stdout.splitlines()) == sorted(both[1].stdout.splitlines())
        assert both[0].stderr == both[1].stderr


def test_run_of_a_namespace(tmp_path: Path) -> None:
    file = tmp_path / "ranks"
    launch._run(launch.parse_args(["-np", "3", "sh", "-c", f"echo $HOROVOD_RANK >> {file}"]))
    assert sorted(file.read_text().split()) == ["0", "1", "2"]
    with pytest.raises(RuntimeError, match=r"rank 0 on localhost failed: .*exit code 3"):
        launch._run(launch.parse_args(["-np", "1", "sh", "-c", "exit 3"]))
    with pytest.raises(ValueError, match="1 slot"):
        launch._run(launch.parse_args(["-np", "2", "-H", "localhost:1", "true"]))


def test_run_of_attributes() -> None:
    args = _HorovodArgs()
    assert (args.num_proc, args.hosts, args.verbose, args.command) == (1, None, False, [])
    args.num_proc = 2
    args.run_func = lambda: int(os.environ["HOROVOD_RANK"])
    assert launch._run(args) == [0, 1]
    with pytest.raises(AttributeError, match="no option nonsense"):
        args.nonsense  # noqa: B018


def test_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    def choice(gloo: bool = False, mpi: bool = False, jsrun: bool = False) -> str:
        return str(launch.run_controller(gloo, lambda: "gloo", mpi, lambda: "mpi", jsrun, lambda: "js", 0))

    monkeypatch.delenv("LSB_JOBID", raising=False)
    monkeypatch.setattr(launch, "mpi_built", lambda verbose=False: False)
    assert launch.is_gloo_used()
    assert not launch.is_gloo_used(use_mpi=True)
    assert (choice(), choice(gloo=True)) == ("gloo", "gloo")
    with pytest.raises(ValueError, match="MPI is not available"):
        choice(mpi=True)
    with pytest.raises(ValueError, match="not an LSF job"):
        choice(jsrun=True)
    monkeypatch.setattr(launch, "mpi_built", lambda verbose=False: True)
    assert not launch.is_gloo_used()
    assert launch.is_gloo_used(use_gloo=True)
    assert (choice(), choice(gloo=True), choice(mpi=True)) == ("mpi", "gloo", "mpi")
    monkeypatch.setenv("LSB_JOBID", "1")
    assert choice(jsrun=True) == "js"
    monkeypatch.setattr(launch, "gloo_built", lambda verbose=False: False)
    with pytest.raises(ValueError, match="built-in transport is not available"):
        choice(gloo=True)
