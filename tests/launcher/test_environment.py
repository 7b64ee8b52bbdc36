"""What a worker finds in its environment."""

import os
import re
import secrets
import socket
import subprocess

import pytest
from answers import by_rank
from child import Child

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture
def environments(run, python):
    def call(*options, env=None):
        result = run(*options, *python(SHOW), env={**os.environ, **(env or {})})
        return by_rank(result)

    return call


def test_placement(environments):
    workers = environments("-np", "3")
    for rank, worker in enumerate(workers):
        assert worker["HOROVOD_RANK"] == worker["HOROVOD_LOCAL_RANK"] == str(rank)
        assert worker["HOROVOD_SIZE"] == worker["HOROVOD_LOCAL_SIZE"] == "3"
        assert (worker["HOROVOD_CROSS_RANK"], worker["HOROVOD_CROSS_SIZE"]) == ("0", "1")
        assert worker["HOROVOD_HOSTNAME"] == "localhost"
        assert worker["HOROVOD_CONTROLLER"] == worker["HOROVOD_CPU_OPERATIONS"] == "gloo"
        assert worker["PYTHONUNBUFFERED"] == "1"


def test_meeting_point_is_shared_and_new_for_every_job(environments):
    first, second = environments("-np", "2"), environments("-np", "2")
    for name in ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "_HOROVOD_SECRET_KEY"):
        assert first[0][name] == first[1][name]
    assert first[0]["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1"
    assert re.fullmatch("[0-9a-f]{64}", first[0]["_HOROVOD_SECRET_KEY"])
    assert first[0]["_HOROVOD_SECRET_KEY"] != second[0]["_HOROVOD_SECRET_KEY"]


def test_port_is_held_while_the_job_runs(run, python):
    code = """
import errno, os, socket
try:
    socket.socket().bind(("127.0.0.1", int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])))
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    assert run("-np", "1", *python(code)).stdout == b"[0]<stdout>:EADDRINUSE\n"


def test_nothing_of_the_launcher_is_inherited(run, python):
    """But the pipe by which a worker says why it ends, which the environment names."""
    code = (
        "import os; pipe = int(os.environ['_HOROVOD_REPORT'].split(':')[0]); "
        "others = {int(fd) for fd in os.listdir('/proc/self/fd')} - {pipe}; "
        "print(sorted(others), pipe > 99, os.readlink('/proc/self/fd/0'))"
    )
    # 3: the listing itself
    assert run("-np", "1", *python(code)).stdout == b"[0]<stdout>:[0, 1, 2, 3] True /dev/null\n"


def test_signals_are_as_usual(run, python):
    code = "import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGTERM))"
    assert run("-np", "1", *python(code)).stdout == b"[0]<stdout>:set() 0\n"


def test_callers_environment_is_passed_on(environments):
    (worker,) = environments("-np", "1", env={"COLOUR": "a=b c", "HOROVOD_RANK": "7", "HOROVOD_CYCLE_TIME": "3.5"})
    assert worker["COLOUR"] == "a=b c"
    assert worker["HOROVOD_RANK"] == "0"
    assert worker["HOROVOD_CYCLE_TIME"] == "3.5"


def test_threads_share_the_cores(environments):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    cores = len(os.sched_getaffinity(0))
    os.environ.pop("OMP_NUM_THREADS", None)
    assert environments("-np", "1", env=environment)[0]["OMP_NUM_THREADS"] == str(cores)
    assert environments("-np", str(2 * cores), env=environment)[0]["OMP_NUM_THREADS"] == "1"
    assert environments("-np", "2", env={"OMP_NUM_THREADS": "5"})[1]["OMP_NUM_THREADS"] == "5"


@pytest.mark.parametrize("elastic", [[], ["--min-np", "2", "--max-np", "2"]], ids=["static", "elastic"])
def test_threads_share_the_cores_of_an_agent(horovodrun, tmp_path, elastic):
    """Agents come before it is known how many workers each gets."""
    key = tmp_path / "key"
    key.write_text(secrets.token_hex(32))
    key.chmod(0o600)
    env = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
    options = ["--rendezvous", place, "--key-file", str(key)]
    # An elastic job ends the other worker once one has finished, so each waits until both have printed.
    wait = f"touch {tmp_path}/printed.$$; until [ $(ls {tmp_path} | grep -c printed) -ge 2 ]; do sleep 0.05; done"
    show = ["sh", "-c", f"echo $OMP_NUM_THREADS $OPENBLAS_NUM_THREADS; {wait}"]
    pipes = {"env": env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with (
        Child([horovodrun, "-np", "2", "--agents", "1", *elastic, *options, *show], **pipes) as launcher,
        Child([horovodrun, "--agent", *options], **pipes),
    ):
        said = launcher.communicate(timeout=60)[0].decode()
    share = max(1, len(os.sched_getaffinity(0)) // 2)
    assert re.findall(r"(?m)<stdout>:(.*)$", said) == [f"{share} {share}"] * 2, said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--fusion-threshold-mb", "3"], {"HOROVOD_FUSION_THRESHOLD": "3145728"}),
        (["--cycle-time-ms=0.25"], {"HOROVOD_CYCLE_TIME": "0.25"}),
        (["--cache-capacity", "0"], {"HOROVOD_CACHE_CAPACITY": "0"}),
        (["--hierarchical-allreduce"], {"HOROVOD_HIERARCHICAL_ALLREDUCE": "1"}),
        (["--no-hierarchical-allgather"], {"HOROVOD_HIERARCHICAL_ALLGATHER": "0"}),
        (
            ["--timeline-filename", "t.json", "--timeline-mark-cycles"],
            {"HOROVOD_TIMELINE": "t.json", "HOROVOD_TIMELINE_MARK_CYCLES": "1"},
        ),
        (["--timeline-mark-cycles"], {"HOROVOD_TIMELINE_MARK_CYCLES": None}),
        (["--no-stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (["--stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "0"}),
        (["--stall-check-warning-time-seconds", "9"], {"HOROVOD_STALL_CHECK_TIME_SECONDS": "9"}),
        (["--stall-check-shutdown-time-seconds", "9"], {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "9"}),
        (["--autotune", "--autotune-log-file", "a.csv"], {"HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_LOG": "a.csv"}),
        (["--autotune-log-file", "a.csv"], {"HOROVOD_AUTOTUNE": None, "HOROVOD_AUTOTUNE_LOG": None}),
        (
            ["--autotune", "--autotune-gaussian-process-noise", "0.5"],
            {"HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "0.5"},
        ),
        (["--log-level", "debug"], {"HOROVOD_LOG_LEVEL": "DEBUG"}),
        (["--log-with-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "0"}),
        (["--log-hide-timestamp"], {"HOROVOD_LOG_HIDE_TIME": "1"}),
        (["--start-timeout", "7"], {"HOROVOD_START_TIMEOUT": "7"}),
        ([], {"HOROVOD_FUSION_THRESHOLD": None, "HOROVOD_LOG_LEVEL": None, "HOROVOD_AUTOTUNE": None}),
    ],
)
def test_tunables_become_variables(environments, options, expected):
    (worker,) = environments("-np", "1", *options)
    assert {name: worker.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "options",
    [
        ["--fusion-threshold-mb", "-1"],
        ["--fusion-threshold-mb", "1.5"],
        ["--cycle-time-ms", "nan"],
        ["--cycle-time-ms", "-0.5"],
        ["--cache-capacity", "many"],
        ["--autotune", "--autotune-gaussian-process-noise", "1.5"],
        ["--log-level", "LOUD"],
    ],
)
def test_values_out_of_range_are_refused(run, options):
    result = run("-np", "1", *options, "true")
    assert result.returncode == 2
    assert options[-2].encode() in result.stderr
    assert b"expected" in result.stderr


def test_a_switch_cannot_be_on_and_off(run):
    result = run("-np", "1", "--autotune", "--no-autotune", "true")
    assert result.returncode == 2
    assert b"--autotune and --no-autotune exclude each other" in result.stderr


def test_deprecated_spelling_warns(run):
    assert b"deprecated" in run("-np", "1", "--log-hide-timestamp", "true").stderr


def test_other_thread_pools_share_the_cores_too_and_it_is_said_once(run, python):
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = {name: value for name, value in os.environ.items() if name not in names}
    code = f"import os; print(*(os.environ[name] for name in {names}))"
    share = str(max(1, len(os.sched_getaffinity(0)) // 2))
    result = run("-np", "2", *python(code), env=env)
    assert sorted(result.stdout.decode().splitlines()) == [f"[{rank}]<stdout>:{share} {share} {share}" for rank in "01"]
    said = f"horovodrun: note: OMP_NUM_THREADS is {share} for each of the 2 workers on localhost "
    assert re.fullmatch(re.escape(said) + r"\(\d+ cores\); set it to choose\n", result.stderr.decode())
    assert run("-np", "1", "true", env=env).stderr == b""
    assert run("-np", "2", "true", env=env | {"OMP_NUM_THREADS": "3"}).stderr == b""


def test_binding_to_cores(run, python):
    code = "import os; print(*sorted(os.sched_getaffinity(0)))"
    own = sorted(os.sched_getaffinity(0))
    for kind, expected in (("none", own), ("core", None), ("numa", None)):
        result = run("-np", "2", "--bind-to", kind, *python(code))
        ranks = [[int(cpu) for cpu in line.partition(b":")[2].split()] for line in sorted(result.stdout.splitlines())]
        assert all(ranks) and set(ranks[0] + ranks[1]) <= set(own)
        if expected:
            assert ranks == [expected, expected]
        if kind == "core":
            assert sorted(ranks[0] + ranks[1]) == own or len(own) == 1
