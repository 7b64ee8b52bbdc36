"""Jobs that mpirun starts: horovodrun --mpi and --mpi-args, with Open MPI and MPICH, and without any."""

import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import mpi
import pytest
from child import Child
from waiting import Processes

REDUCE = """
import os, numpy as np, horovod.numpy as hvd
hvd.init()
total = hvd.allreduce(np.array([hvd.rank() + 1.0]), op=hvd.Sum)
os.write(1, f"rank {hvd.rank()} of {hvd.size()}: {int(total[0])}\\n".encode())
hvd.shutdown()
"""
WAIT = "import os, signal; os.write(1, f'<{os.getpid()}>\\n'.encode()); signal.pause()"
TUTORIAL = "--mca orte_keep_fqdn_hostnames t --allow-run-as-root --display-map --tag-output --timestamp-output"


@pytest.fixture(autouse=True)
def surroundings(monkeypatch, tmp_path):
    """No plugin: the ranks then meet as mpirun's variables tell them. Lines come whole."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    for name in (
        "HOROVOD_MPIRUN",
        "HOROVOD_MPI_HOME",
        "HOROVOD_MPI_LIBRARY",
        "HOROVOD_CPU_OPERATIONS",
        "PYTHONUNBUFFERED",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=mpi.KINDS)
def kind(request, monkeypatch):
    mpi.need(request.param)
    monkeypatch.setenv("HOROVOD_MPIRUN", f"mpirun.{request.param}")
    return request.param


@pytest.fixture
def open_mpi(monkeypatch):
    mpi.need("openmpi")
    monkeypatch.setenv("HOROVOD_MPIRUN", "mpirun.openmpi")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return mpi.path_without_mpi(tmp_path_factory.mktemp("programs") / "bin")


@pytest.fixture
def without_mpi(programs):
    return {**os.environ, "PATH": programs}


def lines_of(result):
    """What the ranks said, without mpirun's labels."""
    assert result.returncode == 0, result.stderr.decode()
    return sorted(re.sub(r"^.*?\[[\d,]+\](<stdout>:)?\s*", "", line) for line in result.stdout.decode().splitlines())


def expected(size):
    return [f"rank {rank} of {size}: {size * (size + 1) // 2}" for rank in range(size)]


def test_a_world_forms(run, python, kind):
    assert lines_of(run("-np", "3", "--mpi", *python(REDUCE))) == expected(3)


def test_lines_say_whose_they_are(run, kind):
    result = run("-np", "2", "--mpi", "echo", "x")
    label = {"openmpi": "[1,{}]<stdout>:x", "mpich": "[{}] x"}[kind]
    assert sorted(result.stdout.decode().splitlines()) == [label.format(rank) for rank in (0, 1)]
    assert result.stderr == b""


def test_the_exit_code_is_that_of_mpirun(run, kind):
    assert run("-np", "2", "--mpi", "sh", "-c", "exit 7").returncode == 7


FAILS = """
import atexit, os, sys, time, numpy as np, horovod.numpy as hvd
atexit.register(time.sleep, 0.5)  # the others have time to say what they lost
hvd.init()
if hvd.rank() == 1:
    {act}
hvd.allreduce(np.ones(4))
"""


def summary_of(result):
    """What horovodrun itself said, after all words of mpirun and the ranks."""
    lines = result.stderr.decode().splitlines()
    first = next((i for i, line in enumerate(lines) if line.startswith("horovodrun: ")), len(lines))
    return "\n".join(lines[first:])


def test_horovodrun_names_the_rank_that_failed(run, python, kind):
    result = run("-np", "3", "--mpi", *python(FAILS.format(act='raise ValueError("bad batch")')))
    assert result.returncode == 1
    assert re.fullmatch(
        r"horovodrun: rank 1 on \S+ raised ValueError: bad batch: pid \d+\nAfter that: ranks 0, 2 lost it\.",
        summary_of(result),
    ), result.stderr.decode()


@pytest.mark.parametrize(
    ("act", "words"), [("sys.exit(3)", "exited"), ("os.kill(os.getpid(), 9)", "is gone")], ids=["exit", "kill"]
)
def test_a_rank_that_says_nothing_is_named_by_those_that_lost_it(run, python, open_mpi, act, words):
    """The others wait a moment for mpirun to see its end."""
    result = run("-np", "3", "--mpi", *python(FAILS.format(act=act)))
    assert result.returncode != 0
    assert re.match(rf"horovodrun: rank 1 on \S+ {words}: pid \d+\n", summary_of(result)), result.stderr.decode()


def test_a_rank_that_fails_before_the_world_forms_is_named(run, python, kind, monkeypatch):
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "2")  # MPICH lets the others wait for it
    code = """
import os, horovod.numpy as hvd
if "1" in (os.environ.get("OMPI_COMM_WORLD_RANK"), os.environ.get("PMI_RANK")):
    raise ValueError("no data")
hvd.init()
"""
    result = run("-np", "2", "--mpi", *python(code))
    assert re.match(r"horovodrun: rank 1 on \S+ raised ValueError: no data: pid \d+\b", summary_of(result)), (
        result.stderr.decode()
    )


def test_nothing_is_said_of_programs_without_horovod(run, kind):
    assert summary_of(run("-np", "2", "--mpi", "sh", "-c", "exit 7")) == ""


def test_mpirun_names_the_rank_that_failed(run, python, open_mpi):
    """It names the process that ended first: those that only lost rank 1, which is slow to leave, wait for it."""
    code = """
import atexit, sys, time, numpy as np, horovod.numpy as hvd
atexit.register(time.sleep, 0.5)
hvd.init()
if hvd.rank() == 1:
    raise ValueError("bad batch")
try:
    hvd.allreduce(np.ones(4))
except hvd.HorovodInternalError as error:
    print(error, file=sys.stderr)
    sys.exit(7)
"""
    result = run("-np", "3", "--mpi", *python(code))
    text = result.stderr.decode()
    assert re.search(r"Process name: \[\[\d+,1\],1\]\n *Exit code: +1\n", text), text
    assert result.returncode == 1
    assert re.search(r"shut down by rank 1 \(.*\): it raised ValueError: bad batch\n", text)


def test_words_of_the_command_arrive_as_they_are(run, kind):
    words = ["a b", "it's", '"', "$HOME", "", "a;b", "*", "--np"]
    show = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
    assert lines_of(run("-np", "1", "--mpi", *show, *words)) == [json.dumps(words)]


def test_variables_reach_the_ranks(run, kind, monkeypatch):
    monkeypatch.setenv("OF_THE_USER", "a;b=c d\"e'")
    monkeypatch.setenv("HOROVOD_RANK", "5")  # of a job that horovodrun is in
    names = "OF_THE_USER", "HOROVOD_CYCLE_TIME", "HOROVOD_RANK"
    show = f"import json, os; print(json.dumps([os.environ.get(name) for name in {names}]))"
    result = run("-np", "1", "--cycle-time-ms", "3", "--mpi", sys.executable, "-c", show)
    assert lines_of(result) == [json.dumps(["a;b=c d\"e'", "3", None])]


def test_threads_are_shared_out(run, kind, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    cores = len(os.sched_getaffinity(0))
    assert lines_of(run("-np", "2", "--mpi", "sh", "-c", "echo $OMP_NUM_THREADS")) == [str(max(1, cores // 2))] * 2


def test_verbose_shows_the_command_that_is_run(run, kind):
    text = run("-np", "2", "--verbose", "--mpi", "true").stderr.decode()
    assert re.search(rf"^horovodrun: mpirun\.{kind} .*-np 2 .* true$", text, re.MULTILINE)


def test_output_files(run, kind, tmp_path):
    run("-np", "2", "--mpi", "--output-filename", str(tmp_path / "out"), "sh", "-c", "echo x; echo y >&2")
    for rank in (0, 1):
        folder = tmp_path / "out" / {"openmpi": f"1/rank.{rank}", "mpich": f"rank.{rank}"}[kind]
        assert (folder / "stdout").read_text().endswith("x\n")
        assert (folder / "stderr").read_text().endswith("y\n")


def test_dry_run_has_the_command_and_no_secret(run, kind):
    result = run("--dry-run", "-np", "2", "-H", "farhost1:1,farhost2:1", "-p", "2222", "--tls", "--mpi", "true")
    job = json.loads(result.stdout)
    launcher = job["launcher"]
    assert launcher["command"][0] == f"mpirun.{kind}"
    assert launcher["command"][-1] == "true"
    assert "-p 2222" in " ".join(launcher["command"]) + launcher["variables"].get("HYDRA_LAUNCHER_EXTRA_ARGS", "")
    secrets = {name for name, value in launcher["variables"].items() if value == "(secret)"}
    assert secrets == {"_HOROVOD_SECRET_KEY", "_HOROVOD_TLS_IDENTITY"}
    assert launcher["variables"]["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "farhost1"


def test_one_user_for_all_hosts(run, kind):
    result = run("--dry-run", "-np", "2", "-H", "me@farhost1:1,farhost2:1", "--mpi", "true")
    assert result.returncode == 2
    assert b"mpirun logs in to all hosts as one user" in result.stderr


def test_the_library_is_built_at_first_use(run, kind, tmp_path, monkeypatch):
    monkeypatch.delenv("HOROVOD_CONTROLLER")
    monkeypatch.setenv("HOROVOD_LIBRARY", mpi.make_package(tmp_path / "package"))
    show = ["sh", "-c", "echo $HOROVOD_CONTROLLER $HOROVOD_CPU_OPERATIONS $HOROVOD_MPI_LIBRARY"]
    first = run("-np", "2", "--mpi", *show)
    path = lines_of(first)[0].split()[2]
    assert lines_of(first) == [f"mpi mpi {path}"] * 2
    assert os.path.isfile(path)
    name = {"openmpi": "Open MPI 4", "mpich": "MPICH 4"}[kind]
    assert f"note: built Horovod's MPI library for {name}" in first.stderr.decode()
    second = run("-np", "2", "--mpi", *show)
    assert (lines_of(second), second.stderr) == (lines_of(first), b"")
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "gloo")  # what the user says stays
    assert lines_of(run("-np", "1", "--mpi", *show)) == [f"mpi gloo {path}"]
    monkeypatch.setenv("HOROVOD_MPI_LIBRARY", "/of/the/user.so")
    assert lines_of(run("-np", "1", "--mpi", *show)) == ["mpi gloo /of/the/user.so"]
    monkeypatch.delenv("HOROVOD_MPI_LIBRARY")
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    assert lines_of(run("-np", "1", "--mpi", *show)) == ["gloo gloo"]


def test_without_the_library_the_ranks_still_run_unless_it_was_asked_for(run, kind, tmp_path, monkeypatch):
    monkeypatch.delenv("HOROVOD_CONTROLLER")
    monkeypatch.setenv("HOROVOD_LIBRARY", str(tmp_path / "libhorovod.so"))
    result = run("-np", "2", "--mpi", "sh", "-c", "echo $HOROVOD_CONTROLLER")
    assert lines_of(result) == ["gloo", "gloo"]  # or else they would try it again, each for itself
    assert result.stderr.startswith(b"horovodrun: note: mpirun starts the ranks, which then communicate without MPI: ")
    monkeypatch.setenv("HOROVOD_CPU_OPERATIONS", "mpi")
    result = run("-np", "2", "--mpi", "echo", "x")
    assert (result.returncode, result.stdout) == (1, b"")
    assert b"has no source of the MPI library" in result.stderr


def test_the_ranks_communicate_through_mpi(run, python, kind, horovodrun, monkeypatch):
    source = pathlib.Path(horovodrun).parents[1] / "lib/mpi/hvd_mpi_shim.c"
    if not source.exists():
        pytest.skip(f"this package has no MPI library: {source}")
    monkeypatch.delenv("HOROVOD_CONTROLLER")
    code = REDUCE.replace("hvd.shutdown()", "assert hvd.mpi_enabled()\nhvd.shutdown()")
    assert lines_of(run("-np", "3", "--mpi", *python(code))) == expected(3)


# ---- the program that starts the ranks


def test_the_tutorial_with_open_mpi(run, python, open_mpi, tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=4\n")
    (tmp_path / "train.py").write_text(REDUCE)
    command = ["bash", "-c", f"{sys.executable} {tmp_path}/train.py"]
    result = run("-n", "4", "--hostfile", str(tmp_path / "hosts"), "--mpi-args", TUTORIAL, *command)
    assert result.returncode == 0, result.stderr.decode()
    text = result.stdout.decode()
    assert "JOB MAP" in text  # --display-map
    for rank in range(4):
        assert re.search(rf"^\w{{3}} \w{{3}} .* 20\d\d\[1,{rank}\]<stdout>:rank {rank} of 4: 10$", text, re.MULTILINE)


def test_the_tutorial_without_mpi(run, without_mpi, tmp_path):
    (tmp_path / "hosts").write_text("localhost slots=4\n")
    (tmp_path / "train.py").write_text(REDUCE)
    command = ["bash", "-c", f"{sys.executable} {tmp_path}/train.py"]
    arguments = ["-n", "4", "--hostfile", str(tmp_path / "hosts"), "--mpi-args", TUTORIAL, *command]
    result = run(*arguments, env=without_mpi)
    assert lines_of(result) == expected(4)
    assert result.stdout.count(b"]<stdout>:rank ") == 4
    assert result.stderr.startswith(b"horovodrun: warning: --mpi-args is ignored: there is no mpirun in PATH: install ")
    assert result.stderr.count(b"\n") == 1


def test_all_arguments_that_are_ignored_are_in_one_warning(run, without_mpi):
    result = run("-np", "1", "--mpi-args=-x A", "--binding-args=-y", "true", env=without_mpi)
    assert result.returncode == 0
    assert result.stderr.startswith(b"horovodrun: warning: --mpi-args and --binding-args are ignored: ")
    assert result.stderr.count(b"\n") == 1


def test_mpi_without_mpirun_names_the_packages(run, without_mpi):
    result = run("-np", "1", "--mpi", "true", env=without_mpi)
    assert (result.returncode, result.stdout) == (2, b"")
    text = result.stderr.decode()
    assert text.count("\n") == 1
    assert "--mpi: there is no mpirun in PATH" in text
    for packages in ("openmpi-bin libopenmpi-dev", "mpich libmpich-dev", "conda: openmpi", "conda: mpich"):
        assert packages in text


def test_an_mpirun_that_is_none_is_not_used(run, tmp_path, monkeypatch):
    (tmp_path / "other").write_text("#!/bin/sh\necho 'launcher of somebody else 1.0'\n")
    (tmp_path / "other").chmod(0o755)
    monkeypatch.setenv("HOROVOD_MPIRUN", str(tmp_path / "other"))
    result = run("-np", "1", "--mpi", "true")
    assert result.returncode == 2
    assert b"--version does not say that it is Open MPI, Spectrum MPI, MPICH or Intel MPI" in result.stderr


def test_without_arguments_for_mpirun_the_built_in_launcher_is_used(run, open_mpi):
    assert run("-np", "1", "echo", "x").stdout == b"[0]<stdout>:x\n"
    assert run("-np", "1", "--gloo", "--mpi-args=-x A", "echo", "x").stdout == b"[0]<stdout>:x\n"


def test_binding_args(run, open_mpi):
    result = run(
        "-np",
        "1",
        "--binding-args",
        "--bind-to core --display-map",
        "sh",
        "-c",
        "grep Cpus_allowed_list /proc/self/status",
    )
    assert result.returncode == 0, result.stderr.decode()
    assert b"JOB MAP" in result.stdout
    assert re.search(rb"Cpus_allowed_list:\s+\d+$", result.stdout, re.MULTILINE)  # one core


# ---- nothing is left


def child_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.fixture
def waiting(horovodrun, kind, monkeypatch):
    """A job of two ranks that wait; its process, mpirun's and theirs."""
    folder = tempfile.TemporaryDirectory(
        prefix="mpi"
    )  # whose files a killed mpirun leaves; pytest's is too long a name
    monkeypatch.setenv("TMPDIR", folder.name)
    command = [horovodrun, "-np", "2", "--mpi", sys.executable, "-c", WAIT]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        pids = [int(re.search(rb"<(\d+)>", process.stdout.readline())[1]) for _ in range(2)]
        launcher = child_of(process.pid)
        yield collections.namedtuple("Job", "process launcher mpirun ranks")(
            process, launcher, child_of(launcher), Processes(pids)
        )
        process.kill()
    folder.cleanup()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_to_horovodrun_leaves_no_rank(waiting, stop):
    waiting.process.send_signal(stop)
    assert waiting.ranks.gone()
    waiting.process.wait(timeout=60)


@pytest.mark.parametrize("which", ["mpirun", "launcher"])
def test_a_killed_mpirun_or_launcher_leaves_no_rank(waiting, which):
    os.kill(getattr(waiting, which), signal.SIGKILL)
    assert waiting.ranks.gone()
    assert waiting.process.wait(timeout=60) == 128 + signal.SIGKILL
