"""Forwarding of output: prefixes, line ends, order, and that nothing is lost."""

import collections
import datetime
import hashlib
import os
import re
import signal
import subprocess

import pytest
from child import Child
from waiting import DEADLINE


def test_lines_carry_rank_and_stream(run):
    result = run("-np", "2", "sh", "-c", "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2")
    assert sorted(result.stdout.splitlines()) == [b"[0]<stdout>:out 0", b"[1]<stdout>:out 1"]
    assert sorted(result.stderr.splitlines()) == [b"[0]<stderr>:err 0", b"[1]<stderr>:err 1"]


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        (r"a\nb\n", b"[0]<stdout>:a\n[0]<stdout>:b\n"),
        (r"\n\n", b"[0]<stdout>:\n[0]<stdout>:\n"),
        (r"no end", b"[0]<stdout>:no end\n"),
        (r"a\r\nb\r\n", b"[0]<stdout>:a\r\n[0]<stdout>:b\r\n"),
        (r"a\rb\n", b"[0]<stdout>:a\r[0]<stdout>:b\n"),
        (r"\r\r", b"[0]<stdout>:\r[0]<stdout>:\r"),
        (r"", b""),
        (r"\303\266\000\377\n", b"[0]<stdout>:\xc3\xb6\x00\xff\n"),
    ],
)
def test_line_ends(run, written, seen):
    assert run("-np", "1", "printf", written).stdout == seen


def test_progress_bar_is_shown_while_it_moves(horovodrun, python):
    """A bar redraws itself with carriage returns; every redraw must come through at once, not at the end."""
    code = "import signal, sys\nfor i in range(3): sys.stderr.write(f' {i}%\\r')\nsignal.pause()"
    with Child([horovodrun, "-np", "1", *python(code)], stderr=subprocess.PIPE) as process:
        seen = b""
        while seen.count(b"\r") < 3 and (part := os.read(process.stderr.fileno(), 4096)):
            seen += part
        process.terminate()
    assert seen == b"[0]<stderr>: 0%\r[0]<stderr>: 1%\r[0]<stderr>: 2%\r"


def test_return_and_newline_in_two_writes(run, python):
    code = """
import fcntl, os, struct, termios
os.write(1, b"a\\r")
# The second part follows when the launcher has taken the first out of the pipe.
while struct.unpack("i", fcntl.ioctl(1, termios.FIONREAD, b"0000"))[0]: os.sched_yield()
os.write(1, b"\\nb\\n")
"""
    assert run("-np", "1", *python(code)).stdout == b"[0]<stdout>:a\r\n[0]<stdout>:b\n"


def test_timestamps(run):
    for option in ("-prefix-timestamp", "--prefix-output-with-timestamp"):
        before = datetime.datetime.now().replace(microsecond=0)
        text = run("-np", "1", option, "echo", "x").stdout.decode()
        time, rest = text[:24], text[24:]
        assert rest == "[0]<stdout>:x\n"
        assert before <= datetime.datetime.strptime(time, "%a %b %d %H:%M:%S %Y") <= datetime.datetime.now()


def test_a_hundred_megabytes_lose_nothing_and_never_mix(horovodrun, python, tmp_path):
    code = """
import os, random, sys
rank = int(os.environ["HOROVOD_RANK"])
pick = random.Random(rank)
text = "".join(chr(65 + pick.randrange(26)) for _ in range(1000))
out = sys.stdout.buffer
for number in range(50000):
    start = number % 400
    out.write(f"{number} {text[start:start + number % 997]}\\n".encode())
"""
    ranks = 4
    path = tmp_path / "out"
    with open(path, "wb") as file:
        subprocess.run([horovodrun, "-np", str(ranks), *python(code)], stdout=file, check=True, timeout=120)
    assert path.stat().st_size > 90_000_000
    counts: collections.Counter[int] = collections.Counter()
    hashes = [hashlib.sha256() for _ in range(ranks)]
    line_start = re.compile(rb"\[(\d)\]<stdout>:(\d+) ")
    with open(path, "rb") as file:
        for line in file:
            match = line_start.match(line)
            rank = int(match[1])
            assert int(match[2]) == counts[rank]
            counts[rank] += 1
            hashes[rank].update(line[len("[0]<stdout>:") :])
    assert counts == dict.fromkeys(range(ranks), 50000)
    for rank in range(ranks):
        plain = subprocess.run(
            python(code), env={**os.environ, "HOROVOD_RANK": str(rank)}, capture_output=True, check=True
        )
        assert hashes[rank].digest() == hashlib.sha256(plain.stdout).digest()


def test_a_line_of_ten_megabytes(run, python):
    result = run("-np", "1", *python("print('x' * 10_000_000); print('y')"))
    assert result.stdout == b"[0]<stdout>:" + b"x" * 10_000_000 + b"\n[0]<stdout>:y\n"


def test_slow_reader_gets_everything(horovodrun, python):
    command = [horovodrun, "-np", "2", *python("for i in range(200000): print(i)")]
    with Child(command, stdout=subprocess.PIPE) as process:
        text = b""
        while part := os.read(process.stdout.fileno(), 1000):
            text += part
    assert process.returncode == 0
    assert text.count(b"\n") == 400000


def test_reader_that_goes_away_does_not_end_the_job(horovodrun, python, tmp_path):
    code = f"for i in range(100000): print(i)\nopen({str(tmp_path / 'done')!r}, 'w')"
    with Child([horovodrun, "-np", "1", *python(code)], stdout=subprocess.PIPE) as process:
        process.stdout.close()
    assert process.returncode == 0
    assert (tmp_path / "done").exists()


def test_stdout_and_stderr_to_one_place_keep_their_lines_apart(horovodrun, python):
    code = "import sys\nfor i in range(20000): print('o' * 50); print('e' * 50, file=sys.stderr)"
    result = subprocess.run(
        [horovodrun, "-np", "2", *python(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
        timeout=60,
    )
    lines = collections.Counter(result.stdout.splitlines())
    assert lines == {
        b"[%d]<std%s>:%s" % (rank, name, letter * 50): 20000
        for rank in (0, 1)
        for name, letter in ((b"out", b"o"), (b"err", b"e"))
    }


def test_output_is_also_written_to_files(run, tmp_path):
    folder = tmp_path / "a/b"
    command = "echo out $HOROVOD_RANK; echo err >&2"
    result = run("-np", "11", "--output-filename", str(folder), "sh", "-c", command)
    assert sorted(path.name for path in folder.iterdir()) == [f"rank.{rank:02}" for rank in range(11)]
    for rank in range(11):
        assert (folder / f"rank.{rank:02}/stdout").read_text() == f"[{rank}]<stdout>:out {rank}\n"
        assert (folder / f"rank.{rank:02}/stderr").read_text() == f"[{rank}]<stderr>:err\n"
    assert result.stdout.count(b"\n") == 11


def test_files_for_a_single_rank(run, tmp_path):
    assert run("-np", "1", "--output-filename", str(tmp_path), "echo", "x").returncode == 0
    assert (tmp_path / "rank.0/stdout").read_text() == "[0]<stdout>:x\n"


def test_files_that_cannot_be_created(run, tmp_path):
    (tmp_path / "file").touch()
    result = run("-np", "2", "--output-filename", str(tmp_path / "file"), "echo", "x")
    assert result.returncode == 1
    assert b"cannot create" in result.stderr
    assert result.stdout == b""


def test_verbose_tells_the_pids(run):
    result = run("-np", "2", "--verbose", "sh", "-c", "echo $$")
    told = dict(re.findall(r"horovodrun: rank (\d) on localhost is pid (\d+)\n", result.stderr.decode()))
    assert dict(re.findall(r"\[(\d)\]<stdout>:(\d+)\n", result.stdout.decode())) == told


LINES = 'while [ ! -e {end} ]; do echo "line $((number += 1))"; sleep 0.02; done'


def lines_of_both(process, count):
    """Reads the launcher's unbuffered stdout until both ranks have written so many lines; what rank 0 wrote."""
    seen = {b"0": [], b"1": []}
    while min(map(len, seen.values())) < count:
        line = process.stdout.readline()
        assert line, "the job has ended"
        seen[line[1:2]].append(line)
    return seen[b"0"]


def test_a_file_that_hangs_holds_up_no_worker_and_loses_nothing(horovodrun, hosts, tmp_path):
    """A pipe without a reader simulates a file system that does not answer."""
    (tmp_path / "out/rank.0").mkdir(parents=True)
    pipe, end = tmp_path / "out/rank.0/stdout", tmp_path / "end"
    os.mkfifo(pipe)
    command = [horovodrun, "-np", "2", "-H", "localhost:1,a:1", "--output-filename", str(tmp_path / "out")]
    with Child(
        [*command, "sh", "-c", LINES.format(end=end)], bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        shown = lines_of_both(process, 30)
        end.touch()
        with pipe.open("rb") as file:
            written = file.read()
        out, _ = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0
    assert written.splitlines(keepends=True) == shown + [
        line for line in out.splitlines(keepends=True) if line.startswith(b"[0]")
    ]
    assert b"line 30\n" in (tmp_path / "out/rank.1/stdout").read_bytes()


def test_output_that_a_file_never_takes_is_counted_when_the_user_stops_the_job(horovodrun, hosts, tmp_path):
    (tmp_path / "out/rank.0").mkdir(parents=True)
    os.mkfifo(tmp_path / "out/rank.0/stdout")
    command = [horovodrun, "-np", "2", "-H", "localhost:1,a:1", "--output-filename", str(tmp_path / "out")]
    command += ["sh", "-c", LINES.format(end=tmp_path / "end")]
    with Child(command, bufsize=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines_of_both(process, 5)
        process.terminate()
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + signal.SIGTERM
    assert re.search(rb"horovodrun: \d+ bytes of output could not be written to files, and are lost\n", err)


def test_a_worker_is_held_back_while_its_file_takes_nothing(horovodrun, tmp_path):
    (tmp_path / "out/rank.0").mkdir(parents=True)
    pipe, done, size = tmp_path / "out/rank.0/stdout", tmp_path / "done", 64 << 20
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    script = f"yes {'x' * 1023} | head -c {size}; touch {done}"
    command = [horovodrun, "-np", "1", "--output-filename", str(tmp_path / "out"), "sh", "-c", script]
    with Child(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert b"rank.0/stdout has taken no output for 5 s" in process.stderr.readline()
        assert not done.exists()
        os.set_blocking(reader, True)
        with open(reader, "rb") as file:
            assert file.read().count(b"x") == size // 1024 * 1023
        _, err = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0
    assert b"all output has been written to its files" in err
