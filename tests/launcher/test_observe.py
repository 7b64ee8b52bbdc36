"""What a job shows of itself: metrics, the live page, dumps and their explanation."""

import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from child import Child
from prometheus_client.openmetrics.parser import text_string_to_metric_families

DEADLINE = 120
ROOT = Path(__file__).resolve().parents[2]
LINKS = {"horovod_link_sent_bytes_total", "horovod_link_retransmits_total"}  # between hosts

# Ranks that do one operation for each line of a pipe, so that a test decides how far they are.
STEPS = """
import os, sys
import numpy as np
import horovod.numpy as hvd
hvd.init()
for i in range(20):
    hvd.allreduce(np.ones(1000, np.float32), name=f"grad.{i % 5}")
hvd.allgather(np.ones(3), name="rows")
print("ready", flush=True)
gate = os.open(os.environ["GATE"], os.O_RDONLY)
os.read(gate, 1)
"""
# Rank 1 stays away from grad.12 until the test lets it go.
STUCK = """
import os, sys
import numpy as np
import horovod.numpy as hvd
def load_batch():
    gate = os.open(os.environ["GATE"], os.O_RDONLY)
    os.read(gate, 1)
hvd.init()
hvd.allreduce(np.ones(4), name="grad.11")
if hvd.rank() == 1:
    load_batch()
hvd.allreduce(np.ones(4), name="grad.12")
"""


@pytest.fixture
def gate(tmp_path, monkeypatch):
    """The write end of a pipe at which ranks wait: open_gate() lets them go."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    monkeypatch.setenv("GATE", str(path))
    pipe = os.open(path, os.O_RDWR)
    yield pipe
    os.close(pipe)


@pytest.fixture(autouse=True)
def private(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url, token=""):
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=DEADLINE) as reply:
        return reply.read().decode()


def refusal(url, token=""):
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(url, token)
    return refused.value.code


def read_until(stream, text, count=1):
    lines = []
    while count > 0:
        line = stream.readline().decode()
        assert line, "".join(lines)
        lines.append(line)
        count -= text in line
    return lines


def open_gate(gate, readers):
    os.write(gate, b"x" * readers)


def samples_of(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_what_the_ranks_have_done(horovodrun, gate):
    port = free_port()
    command = [horovodrun, "-np", "2", "--metrics-port", str(port), sys.executable, "-c", STEPS]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        read_until(process.stdout, "ready", 2)
        found = samples_of(get(f"http://127.0.0.1:{port}/metrics"))
        hosts = {dict(key[1:])["host"] for key in found}
        assert len(hosts) == 1
        host = ("host", hosts.pop())
        for rank in "01":
            at = (host, ("rank", rank))
            assert found["horovod_operations_total", host, ("kind", "allreduce"), ("rank", rank)] == 20
            assert found["horovod_operation_bytes_total", host, ("kind", "allreduce"), ("rank", rank)] == 20 * 4000
            assert found["horovod_dtype_bytes_total", ("dtype", "float64"), host, ("rank", rank)] == 24
            assert found[("horovod_agreement_seconds_count", *at)] == 22  # hvd.init() has one of its own
            assert found[("horovod_cache_misses_total", *at)] == 7
            assert found[("horovod_cache_hits_total", *at)] == 15
            assert found[("horovod_rank_running", *at)] == 1
            assert found[("horovod_resident_bytes", *at)] > 1 << 20
        dashboard = (ROOT / "deploy" / "grafana" / "horovod.json").read_text()
        served = {key[0] for key in found}
        assert set(re.findall(r"horovod_\w+", dashboard)) - LINKS <= served
        assert refusal(f"http://127.0.0.1:{port}/") == 404
        open_gate(gate, 2)
        assert process.wait(DEADLINE) == 0


def test_metrics_want_their_token(horovodrun, gate, monkeypatch):
    monkeypatch.setenv("HOROVOD_METRICS_TOKEN", "secret")
    port = free_port()
    command = [horovodrun, "-np", "1", "--metrics-port", str(port), sys.executable, "-c", STEPS]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        read_until(process.stdout, "ready")
        url = f"http://127.0.0.1:{port}/metrics"
        assert refusal(url) == 401
        assert refusal(url, "secre") == 401
        assert "horovod_plans_total" in get(url, "secret")
        open_gate(gate, 1)
        assert process.wait(DEADLINE) == 0


def test_the_program_sees_its_own_metrics(run, python):
    code = """
import numpy as np
import horovod.numpy as hvd
assert hvd.metrics() == {}
hvd.init()
hvd.allreduce(np.ones(10, np.float32))
found = hvd.metrics()
assert (found["rank"], found["size"], found["state"]) == (hvd.rank(), 2, "running"), found
assert found["operations"]["allreduce"] == {"count": 1, "bytes": 40, "failed": 0}, found
assert found["process_sets"]["0"]["count"] == found["finished"] >= 1
assert found["queue_depth"] == 0 and found["waits"] >= 1
hvd.shutdown()
assert hvd.metrics()["state"] == "left"
"""
    result = run("-np", "2", *python(code))
    assert result.returncode == 0, result.stderr.decode()


def test_nothing_is_counted_when_that_is_switched_off(run, python, monkeypatch):
    monkeypatch.setenv("HOROVOD_OBSERVE", "0")
    code = "import numpy as np, horovod.numpy as hvd; hvd.init(); hvd.allreduce(np.ones(1)); assert hvd.metrics() == {}"
    result = run("-np", "2", *python(code))
    assert result.returncode == 0, result.stderr.decode()


def dump_of(text):
    found = re.search(r"horovodrun --explain (\S+)", text)
    assert found, text
    return Path(found[1])


def test_a_failed_job_leaves_a_dump_that_explains_it(run, python):
    code = """
import os, signal
import numpy as np
import horovod.numpy as hvd
hvd.init()
hvd.allreduce(np.ones(4), name="first")
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(np.ones(4), name="second")
"""
    result = run("-np", "2", *python(code))
    assert result.returncode == 1
    path = dump_of(result.stderr.decode())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    workers = json.loads(path.read_text())["workers"]
    assert [worker["metrics"]["rank"] for worker in workers] == [0, 1]
    assert workers[1]["operations"][-1]["name"] == "allreduce.first"  # of a process that is dead
    story = run("--explain", str(path)).stdout.decode()
    assert "rank 1" in story and "killed by SIGKILL" in story


def test_no_dump_of_what_is_no_rank_or_is_not_wanted(run, python, tmp_path):
    result = run("-np", "1", *python("raise SystemExit(3)"))
    assert b"--explain" not in result.stderr
    fails = python("import horovod.numpy as hvd; hvd.init(); raise SystemExit(3)")
    assert b"--explain" not in run("-np", "1", "--dump-dir", "none", *fails).stderr
    folder = tmp_path / "there"
    assert dump_of(run("-np", "1", "--dump-dir", str(folder), *fails).stderr.decode()).parent == folder


def test_a_stall_report_shows_where_the_missing_rank_is(horovodrun, gate, monkeypatch, run):
    monkeypatch.setenv("HOROVOD_STALL_CHECK_TIME_SECONDS", "1")
    with Child([horovodrun, "-np", "2", sys.executable, "-c", STUCK], stderr=subprocess.PIPE) as process:
        lines = read_until(process.stderr, "--explain")
        text = "".join(lines)
        assert re.search(r"rank 1 on localhost \(pid \d+\), which others wait for, is here:\n", text), text
        assert re.search(r'File "<string>", line \d+ in load_batch\n', text), text
        story = run("--explain", str(dump_of(text))).stdout.decode()
        assert re.search(r"rank 0 waited \d+\.\d s in allreduce\.grad\.12\.\n", story), story
        assert re.search(r"rank 1 on localhost never submitted allreduce\.grad\.12; it was in load_batch \(", story), (
            story
        )
        assert "native thread" in dump_of(text).read_text()
        open_gate(gate, 1)
        assert process.wait(DEADLINE) == 0


def test_a_stopped_rank_is_named_as_stopped(horovodrun, gate, run, tmp_path):
    code = "print('pid', __import__('os').getpid(), flush=True)\n" + STEPS
    command = [horovodrun, "-np", "2", sys.executable, "-c", code]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines = read_until(process.stdout, "ready", 2)
        pids = [int(line.rpartition(" ")[2]) for line in lines if "pid" in line]
        os.kill(pids[0], signal.SIGSTOP)
        made = run("--dump", "--dump-dir", str(tmp_path / "there"), str(process.pid))
        os.kill(pids[0], signal.SIGCONT)
        assert made.returncode == 0, made.stderr.decode()
        assert Path(made.stdout.decode().strip()).parent == tmp_path / "there"
        story = run("--explain", made.stdout.decode().strip()).stdout.decode()
        assert "its process was stopped" in story
        open_gate(gate, 2)
        assert process.wait(DEADLINE) == 0


def test_a_signal_asks_for_a_dump(horovodrun, gate, run):
    command = [horovodrun, "-np", "2", sys.executable, "-c", STEPS]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        read_until(process.stdout, "ready", 2)
        process.send_signal(signal.SIGUSR2)
        text = "".join(read_until(process.stderr, "--explain"))
        story = run("--explain", str(dump_of(text))).stdout.decode()
        assert story.startswith("A dump was asked for.")
        assert "2 workers, 2 of them ranks" in story
        open_gate(gate, 2)
        assert process.wait(DEADLINE) == 0


def test_a_rank_below_a_shell_is_seen(horovodrun, gate, run):
    script = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, STEPS]
    with Child([horovodrun, "-np", "1", *script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        read_until(process.stdout, "ready")
        made = run("--dump", str(process.pid))
        assert made.returncode == 0, made.stderr.decode()
        assert 'File "<string>"' in json.loads(Path(made.stdout.decode().strip()).read_text())["workers"][0]["stacks"]
        open_gate(gate, 1)
        assert process.wait(DEADLINE) == 0


def test_log_lines_as_json(run, python, tmp_path):
    code = "import horovod.numpy as hvd; hvd.init()"
    options = ["--log-format", "json", "--log-level", "DEBUG", "--output-filename", str(tmp_path / "out")]
    result = run("-np", "1", *options, *python(code))
    assert result.returncode == 0, result.stderr.decode()
    text = (tmp_path / "out" / "rank.0" / "stdout").read_text()
    lines = [json.loads(line.removeprefix("[0]<stdout>:")) for line in text.splitlines()]
    assert lines
    for line in lines:
        assert line["level"] in ("debug", "info")
        assert line["file"].endswith(".cc") and line["message"] and line["time"] > 1.6e9
    refused = run("-np", "1", "--log-format", "yaml", *python(code))
    assert refused.returncode != 0
    assert b"HOROVOD_LOG_FORMAT=yaml is not valid: it must be text or json" in refused.stdout + refused.stderr


def test_top_finds_the_job(horovodrun, gate, run):
    with Child([horovodrun, "-np", "2", sys.executable, "-c", STEPS], stdout=subprocess.PIPE) as process:
        read_until(process.stdout, "ready", 2)
        shown = run("--top", str(process.pid))
        assert shown.returncode == 0, shown.stderr.decode()
        assert f"job {process.pid}: 2 ranks" in shown.stdout.decode()
        open_gate(gate, 2)
        assert process.wait(DEADLINE) == 0
    gone = run("--top", str(process.pid))
    assert gone.returncode == 1
    assert b"no job with process id" in gone.stderr
    assert run("--top", "x").returncode == 2


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def dom(url, profile):
    """The page after its scripts have run."""
    browser = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    browser += [f"--user-data-dir={profile}", "--virtual-time-budget=4000", "--dump-dom", url]
    # A socket of the browser is in TMPDIR, and the name of a socket must be short.
    short = {**os.environ, "TMPDIR": "/tmp"}
    shown = subprocess.run(browser, env=short, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def page_of(process):
    line = read_until(process.stderr, "the live page is at")[-1]
    address, token = re.search(r"(http://\S+/)\?token=(\w+)", line).groups()
    return address, token


def test_the_page_wants_its_token(horovodrun, gate):
    command = [horovodrun, "-np", "2", "--status-port", "0", sys.executable, "-c", STEPS]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        address, token = page_of(process)
        read_until(process.stdout, "ready", 2)
        for path in ("", "status.json", "events", "stacks", "dump"):
            assert refusal(address + path) == 401
            assert refusal(f"{address}{path}?token={token[:-1]}0{token[-1]}") == 401
        stacks = json.loads(get(f"{address}stacks?worker=1", token))
        assert len(stacks) == 1 and stacks[0]["worker"] == 1
        assert 'File "<string>"' in stacks[0]["stacks"] and "native thread" in stacks[0]["stacks"]
        status = json.loads(get(f"{address}status.json", token))
        assert [worker["worker"] for worker in status["workers"]] == [0, 1]
        assert "ready" in "".join(status["workers"][0]["lines"])
        with urllib.request.urlopen(f"{address}events?token={token}", timeout=DEADLINE) as stream:
            assert json.loads(stream.readline().removeprefix(b"data: "))["ranks"] == 2
            assert stream.readline() == b"\n"
            assert json.loads(stream.readline().removeprefix(b"data: "))["ranks"] == 2  # the next one
        assert {worker["metrics"]["rank"] for worker in json.loads(get(f"{address}dump", token))["workers"]} == {0, 1}
        open_gate(gate, 2)
        assert process.wait(DEADLINE) == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
def test_the_page_shows_ranks_in_a_browser(horovodrun, gate, tmp_path):
    command = [horovodrun, "-np", "2", "--status-port", "0", sys.executable, "-c", STEPS]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        address, token = page_of(process)
        read_until(process.stdout, "ready", 2)
        shown = dom(f"{address}?token={token}&once", tmp_path / "profile")
        assert "2 of 2 processes" in shown, shown
        assert 'aria-label="stacks of ' in shown
        open_gate(gate, 2)
        assert process.wait(DEADLINE) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_of_the_machine_sees_nothing(horovodrun, gate, run):
    spy = """
import glob, os, socket, sys
launcher = int(sys.argv[1])
for line in open("/proc/net/unix"):
    name = line.split()[-1]
    if name == f"@horovodrun.0.{launcher}":
        break
else:
    sys.exit("no control socket")
with socket.socket(socket.AF_UNIX) as control:
    control.connect("\\0" + name[1:])
    try:
        control.sendall(b"GET /status.json HTTP/1.1\\r\\n\\r\\n")
        answer = control.recv(100)
    except ConnectionError:
        answer = b""
assert answer == b"", answer
for process in glob.glob("/proc/[0-9]*"):
    try:
        if os.stat(process).st_uid == os.getuid():
            continue
        os.listdir(process + "/fd")
    except OSError:
        continue
    sys.exit(process)
"""
    with Child([horovodrun, "-np", "1", sys.executable, "-c", STEPS], stdout=subprocess.PIPE) as process:
        read_until(process.stdout, "ready")
        subprocess.run(["python3", "-c", spy, str(process.pid)], user=65534, group=65534, timeout=DEADLINE, check=True)
        open_gate(gate, 1)
        assert process.wait(DEADLINE) == 0
