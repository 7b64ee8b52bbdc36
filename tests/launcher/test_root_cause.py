"""Whatever ends a job, the summary names the rank that failed, not those that felt it.

Rank 1 fails in most of these. It takes its time to leave, as a process with much to tear down does, so that the others
have failed and ended long before it.
"""

import re
import sys

import pytest

START = """
import atexit, os, signal, sys, threading, time
import numpy as np
import horovod.numpy as hvd
def fail():
    {act}
def step(name):
    return hvd.allreduce(np.ones(4), name=name)
"""
# Rank 1 ends after the others, which have told their pids in the first step.
SLOW = """
pids = []
def outlast():
    while any(os.path.exists(f"/proc/{pid}") for pid in pids if pid != os.getpid()):
        time.sleep(0.01)
atexit.register(outlast)
"""
BODY = """
hvd.init()
gathered = hvd.allgather(np.array([os.getpid()])).tolist()
if hvd.rank() == 1:
    pids = gathered
if hvd.rank() == 1:
    fail()
step("second")
"""
CAUGHT = """
hvd.init()
if hvd.rank() == 1:
    fail()
try:
    step("x")
except hvd.HorovodInternalError as error:
    {}
"""
RAISE = 'raise ValueError("bad batch")'


def script(act: str, body: str = BODY, before: str = SLOW) -> list[str]:
    return [sys.executable, "-c", START.format(act=act) + before + body]


def summary_of(result) -> str:
    """What the launcher itself said."""
    assert result.returncode == 1, result.stderr.decode()
    return re.sub(r"(?m)^\[\d+\]<std(out|err)>:.*\n", "", result.stderr.decode())


def last_lines(summary: str) -> str:
    return summary.partition("The last lines of its stderr:\n")[2]


@pytest.mark.parametrize("where", ["localhost", "hosts"])
def test_an_exception(run, where, request):
    hosts = []
    if where == "hosts":
        request.getfixturevalue("hosts")
        hosts = ["-H", "a:1,b:2"]
    summary = summary_of(run("-np", "3", *hosts, *script(RAISE)))
    name = "b" if hosts else "localhost"
    assert re.search(rf"horovodrun: rank 1 on {name} failed: pid \d+, exit code 1, ", summary), summary
    assert "\nIt raised ValueError: bad batch\n" in summary
    assert "\nAfter that: ranks 0, 2 lost it.\n" in summary
    assert last_lines(summary).endswith("    ValueError: bad batch\n")
    assert "HorovodInternalError" not in summary


@pytest.mark.parametrize(
    ("act", "text"),
    [
        ("sys.exit(3)", "failed: pid {pid}, exit code 3, "),
        ("sys.exit('no data')", "failed: pid {pid}, exit code 1, "),
        ("os._exit(4)", "failed: pid {pid}, exit code 4, "),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "failed: pid {pid}, killed by SIGSEGV "),
        ("os.kill(os.getpid(), signal.SIGKILL)", "failed: pid {pid}, killed by SIGKILL "),
        ("signal.raise_signal(signal.SIGINT)", "failed: pid {pid}, killed by SIGINT "),
        ("sys.exit(0)", "exited: pid {pid}, "),
        ("hvd.shutdown(); time.sleep(600)", "called shutdown: pid {pid}, "),
    ],
    ids=["exit", "exit-text", "_exit", "segv", "kill", "interrupt", "exit-0", "shutdown"],
)
def test_other_ends(run, act, text):
    summary = summary_of(run("-np", "3", *script(act)))
    wanted = re.escape("horovodrun: rank 1 on localhost " + text).replace(r"\{pid\}", r"\d+")
    assert re.match(wanted, summary), summary
    if "SIGINT" in act:
        assert "\nIt raised KeyboardInterrupt" in summary


def test_a_stopped_rank_is_named_by_those_that_miss_it(run, monkeypatch):
    """Nothing ends it but the launcher, so nothing is waited for."""
    monkeypatch.setenv("HOROVOD_COLLECTIVE_TIMEOUT_SECONDS", "1")
    summary = summary_of(run("-np", "2", *script("os.kill(os.getpid(), signal.SIGSTOP)")))
    assert re.match(r"horovodrun: rank 1 on localhost did not do its part in time: pid \d+, ", summary), summary


def test_several_fail_at_once(run):
    body = """
hvd.init()
step("first")
if hvd.rank() in (1, 2):
    raise KeyError(hvd.rank())
step("second")
"""
    summary = summary_of(run("-np", "4", *script("pass", body)))
    found = re.match(r"horovodrun: rank ([12]) on localhost failed: pid \d+, exit code 1, ", summary)
    assert found, summary
    assert f"\nIt raised KeyError: {found[1]}\n" in summary
    assert last_lines(summary).endswith(f"    KeyError: {found[1]}\n")


def test_a_cause_that_is_slow_to_end_is_awaited_although_another_rank_fails_by_itself(run):
    """All but rank 1 have lost it; rank 2 then raises something of its own."""
    body = """
hvd.init()
gathered = hvd.allgather(np.array([os.getpid()])).tolist()
if hvd.rank() == 1:
    pids = gathered
    fail()
try:
    step("second")
except hvd.HorovodInternalError:
    if hvd.rank() == 2:
        raise KeyError("second") from None
    raise
"""
    summary = summary_of(run("-np", "4", *script(RAISE, body)))
    assert re.match(r"horovodrun: rank 1 on localhost failed: pid \d+, exit code 1, ", summary), summary
    assert "\nIt raised ValueError: bad batch\n" in summary
    assert "\nAfter that: ranks 0, 3 lost it, rank 2 raised KeyError: 'second'.\n" in summary


def test_all_fail_alike(run):
    summary = summary_of(run("-np", "3", *script(RAISE, "hvd.init()\nstep('first')\nfail()\n", "")))
    assert re.match(r"horovodrun: rank \d on localhost failed: ", summary), summary
    assert "\nIt raised ValueError: bad batch\n" in summary


@pytest.mark.parametrize(
    "body",
    [
        "if os.environ['HOROVOD_RANK'] == '1': fail()\nhvd.init()\n",
        "hvd.init()\nif hvd.rank() == 1: fail()\nsignal.pause()\n",
        "hvd.init()\nstep('first')\nsys.excepthook = lambda *_: None\nif hvd.rank() == 1: fail()\nstep('second')\n",
        CAUGHT.format("raise RuntimeError() from error"),
        CAUGHT.format("sys.exit(7)"),
    ],
    ids=["before-init", "others-are-busy", "hook-replaced", "wrapped", "caught"],
)
def test_an_exception_wherever_the_others_are(run, body):
    summary = summary_of(run("-np", "3", *script(RAISE, body)))
    assert re.match(r"horovodrun: rank 1 on localhost failed: pid \d+, exit code 1, ", summary), summary
    assert "\nIt raised ValueError: bad batch\n" in summary


def test_an_exception_of_a_thread_explains_an_exit(run):
    act = "t = threading.Thread(target=lambda: int('x'), name='loader'); t.start(); t.join(); sys.exit(5)"
    summary = summary_of(run("-np", "2", *script(act)))
    assert re.match(r"horovodrun: rank 1 on localhost failed: pid \d+, exit code 5, ", summary), summary
    assert re.search(r"\nIt raised ValueError: invalid literal .* \(in thread loader\)\n", summary), summary


def test_a_child_that_fails_is_not_the_rank(run):
    """Neither one that was forked nor one that was started says anything in the rank's name."""
    act = f"""
    if os.fork() == 0: raise KeyError("child")
    os.wait()
    os.system('{sys.executable} -c "import horovod.numpy; raise KeyError(1)"')
    {RAISE}"""
    summary = summary_of(run("-np", "2", *script(act, before="")))
    assert "\nIt raised ValueError: bad batch\n" in summary


def test_errors_name_their_origin(run):
    body = """
hvd.init()
if hvd.rank() == 1:
    fail()
try:
    step("x")
except hvd.HorovodInternalError as error:
    o = error.origin
    print(error.origin_rank, o.rank, o.kind, o.exception, o.host, o.is_own, flush=True)
    print(error, file=sys.stderr)
"""
    result = run("-np", "2", *script(RAISE, body))
    assert b"[0]<stdout>:1 1 exception ValueError: bad batch localhost False\n" in result.stdout
    assert re.search(rb"shut down by rank 1 \(localhost, pid \d+\): it raised ValueError: bad batch\n", result.stderr)


@pytest.mark.parametrize("level", ["", "debug"])
def test_the_traceback_of_a_consequence_is_short(run, monkeypatch, tmp_path, level):
    monkeypatch.setenv("HOROVOD_LOG_LEVEL", level or "warning")
    program = tmp_path / "train.py"
    program.write_text(START.format(act=RAISE) + "def train():\n    step('x')\n" + BODY)
    err = run("-np", "2", sys.executable, str(program)).stderr.decode()
    lines = [line for line in err.splitlines() if line.startswith("[0]<stderr>:") and " debug " not in line]
    text = "\n".join(line.removeprefix("[0]<stderr>:") for line in lines)
    assert "in step\n    return hvd.allreduce(np.ones(4), name=name)\n" in text
    assert "it raised ValueError: bad batch" in text
    assert ("frames are omitted" in text) == (level == "")
    assert level == "debug" or text.count("\n") <= 5, text


def test_with_torch(run):
    pytest.importorskip("torch")
    body = """
import torch, horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
for step in range(3):
    if step == 1 and hvd.rank() == 1:
        raise ValueError("bad batch")
    try:
        hvd.allreduce(torch.ones(1), name="x")
    except hvd.HorovodInternalError:
        print("lost the world", flush=True)  # and a gradient that is submitted now is refused for the same reason
    optimizer.zero_grad()
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
    summary = summary_of(run("-np", "3", sys.executable, "-c", body))
    assert re.match(r"horovodrun: rank 1 on localhost failed: pid \d+, exit code 1, ", summary), summary
    assert "\nIt raised ValueError: bad batch\n" in summary
    assert last_lines(summary).endswith("    ValueError: bad batch\n")


@pytest.mark.parametrize("loop", [True, False], ids=["loop", "plain"])
def test_an_elastic_job_that_fails(run, loop):
    """With and without the loop that recovers: a generation ends because of rank 1, and no other may follow."""
    body = BODY
    if loop:
        body = """
from horovod.common.elastic import ObjectState, run_fn
def reset():
    hvd.shutdown()
    hvd.init()
def train(state):
    step("first")
    if hvd.rank() == 1:
        fail()
    step("second")
hvd.init()
run_fn(train, reset)(ObjectState(lambda value, root_rank=0, name=None: value, hvd.rank, step=0))
"""
    summary = summary_of(run("-np", "3", "--min-np", "3", "--reset-limit", "0", *script(RAISE, body)))
    if not loop:
        assert "\nAfter that: ranks 0, 2 lost it.\n" in summary
    assert re.search(r"\nThe last failure: rank 1 on localhost failed: pid \d+, exit code 1, ", summary), summary
    assert "\nIt raised ValueError: bad batch\n" in summary
    assert last_lines(summary).endswith("    ValueError: bad batch\n")
