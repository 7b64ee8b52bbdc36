"""The job that a command line describes, as --dry-run prints it: hosts, allocations of schedulers, and their errors."""

import json
import os
import random
import socket

import pytest

SCHEDULERS = ("SLURM_", "LSB_", "PBS_", "PE_", "CSM_")


@pytest.fixture
def job(run):
    def call(*arguments, env=None):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}
        result = run("--dry-run", *arguments, "true", env={**clean, **(env or {})})
        assert result.returncode == 0, result.stderr.decode()
        return json.loads(result.stdout)

    return call


@pytest.fixture
def refusal(run):
    def call(*arguments, env=None):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(SCHEDULERS)}
        result = run("--dry-run", *arguments, "true", env={**clean, **(env or {})})
        assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (2, b"", 1)
        return result.stderr.decode()

    return call


def hosts_of(job):
    return [(host["name"], host["slots"]) for host in job["hosts"]]


def places_of(job):
    return [(rank["host"], rank["local_rank"]) for rank in job["ranks"]]


def test_nothing_is_run(run):
    assert run("--dry-run", "-np", "1", "/no/such/program").returncode == 0


def test_default_is_this_machine(job):
    assert hosts_of(job("-np", "3")) == [("localhost", 3)]


def test_hosts_without_np_use_every_slot(job):
    found = job("-H", "a:2,b:1")
    assert found["num_proc"] == 3
    assert places_of(found) == [("a", 0), ("a", 1), ("b", 0)]


def test_np_caps_the_number_of_processes(job):
    found = job("-np", "3", "-H", "a:2,b:4,c:4")
    assert places_of(found) == [("a", 0), ("a", 1), ("b", 0)]


def test_a_host_without_slots_has_one(job):
    assert hosts_of(job("-H", "a,b:2")) == [("a", 1), ("b", 2)]


def test_users_and_ipv6(job):
    found = job("-H", "me@a:2,[fd00::7]:3,you@[fe80::1%eth0]")
    assert [(host["user"], host["name"], host["slots"]) for host in found["hosts"]] == [
        ("me", "a", 2),
        ("", "fd00::7", 3),
        ("you", "fe80::1%eth0", 1),
    ]


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]", "LOCALHOST", socket.gethostname()])
def test_this_machine_is_recognised(job, name):
    assert job("-H", f"{name}:1")["hosts"][0]["local"]


@pytest.mark.parametrize("name", ["other.example", "192.0.2.77", "[2001:db8::1]"])
def test_other_machines_are_not(job, name):
    assert not job("-H", f"{name}:1")["hosts"][0]["local"]


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("a:", "expected NAME:SLOTS"),
        ("a:0", "1 to 100000 slots"),
        ("a:-1", "1 to 100000 slots"),
        ("a:100001", "1 to 100000 slots"),
        ("fd00::1:2", "write an IPv6 address in brackets"),
        ("[fd00::1", "expected an IPv6 address in the brackets"),
        ("[a]:2", "expected an IPv6 address in the brackets"),
        ("[::1]x", "expected NAME:SLOTS"),
        ("@a:1", "expected USER@HOST:SLOTS"),
        ("-oProxyCommand:1", "expected NAME:SLOTS"),
        ("-l@a:1", "expected USER@HOST:SLOTS"),
        ("a;b:1", "expected NAME:SLOTS"),
        ("a:1,,b:1", "bad host ''"),
        ("me@a:1,you@a:1", "two users, 'me' and 'you'"),
    ],
)
def test_bad_hosts(refusal, hosts, words):
    text = refusal(f"-H={hosts}")
    assert "bad host" in text
    assert words in text


def test_hostfile(job, tmp_path):
    path = tmp_path / "hosts"
    path.write_text(
        "# the cluster\n\na slots=2\n  b:3  # new\nc\nme@d slots = 4 max_slots=9\n[fd00::1] slots=2\r\na slots=1\n"
    )
    found = job("--hostfile", str(path))
    assert hosts_of(found) == [("a", 3), ("b", 3), ("c", 1), ("d", 4), ("fd00::1", 2)]
    assert found["hosts"][3]["user"] == "me"
    assert hosts_of(job("-hostfile", str(path), "-np", "2")) == hosts_of(found)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a slots=x", "'slots=x': expected a number of slots"),
        ("a slots=0", "expected a number of slots"),
        ("a slots=", "expected a number of slots"),
        ("a 4", "'4' is not valid; expected HOST slots=N"),
        ("a slot=2 colour=red", "'colour=red' is not valid"),
        ("a/b", "bad host"),
        ("# nothing", "contains no host"),
    ],
)
def test_bad_hostfile(refusal, tmp_path, line, words):
    path = tmp_path / "hosts"
    path.write_text(f"good slots=1\n\n{line}\n" if "nothing" not in line else line)
    text = refusal("--hostfile", str(path))
    assert words in text
    if "nothing" not in line:
        assert f"{path}:3: " in text


def test_slurm(job):
    env = {"SLURM_JOB_NODELIST": "node[1-3],big[08-10]", "SLURM_TASKS_PER_NODE": "2(x3),1,4(x2)"}
    found = job(env=env)
    names = ["node1", "node2", "node3", "big08", "big09", "big10"]
    assert hosts_of(found) == list(zip(names, [2, 2, 2, 1, 4, 4], strict=True))
    assert found["num_proc"] == 15
    assert job("-np", "3", env=env)["ranks"][2]["host"] == "node2"


def test_slurm_without_numbers_of_tasks(job):
    assert hosts_of(job(env={"SLURM_JOB_NODELIST": "a,b"})) == [("a", 1), ("b", 1)]


def test_hosts_of_the_user_win_over_an_allocation(job):
    assert hosts_of(job("-H", "c:1", env={"SLURM_JOB_NODELIST": "a"})) == [("c", 1)]


def test_an_allocation_of_one_host_takes_as_many_ranks_as_asked_for(job):
    assert hosts_of(job("-np", "4", env={"SLURM_JOB_NODELIST": "a", "SLURM_TASKS_PER_NODE": "1"})) == [("a", 4)]


def test_an_allocation_that_is_too_small_is_named(refusal):
    text = refusal("-np", "4", env={"SLURM_JOB_NODELIST": "a[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"})
    assert "4 processes requested, but the allocation of Slurm (a1:1, a2:1) has 2 slots" in text
    text = refusal("-np", "99", env={"SLURM_JOB_NODELIST": "a[01-20]"})
    assert "(a01:1, a02:1, a03:1, a04:1, a05:1, a06:1, a07:1, a08:1 and 12 more) has 20 slots" in text


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"SLURM_JOB_NODELIST": "a[1-"}, "cannot read the list of nodes 'a[1-'"),
        ({"SLURM_JOB_NODELIST": "a[1-99999999]"}, "cannot read the list of nodes"),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_TASKS_PER_NODE": "2(x"}, "cannot read the numbers per node '2(x'"),
        ({"SLURM_JOB_NODELIST": "a", "SLURM_TASKS_PER_NODE": "2(x2)"}, "names 1 nodes, SLURM_TASKS_PER_NODE 2"),
        ({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a 2 b"}, "cannot read LSB_MCPU_HOSTS='a 2 b'"),
        ({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a x"}, "bad host"),
        ({"PBS_NODEFILE": "/no/such/file"}, "cannot read the host file /no/such/file"),
        ({"PE_HOSTFILE": "/no/such/file"}, "cannot read the host file /no/such/file"),
    ],
)
def test_unreadable_allocations(refusal, env, words):
    text = refusal("-np", "1", env=env)
    assert "the allocation of " in text
    assert words in text
    assert "name the hosts with -H" in text


def test_lsf(job, tmp_path):
    hostfile = tmp_path / "lsf"
    hostfile.write_text("a\na\nb\n")
    base = {"LSB_JOBID": "7", "LSB_HOSTS": "c c d", "LSB_MCPU_HOSTS": "e 4 f 2"}
    assert hosts_of(job(env={**base, "LSB_DJOB_HOSTFILE": str(hostfile)})) == [("a", 2), ("b", 1)]
    assert hosts_of(job(env=base)) == [("e", 4), ("f", 2)]
    assert hosts_of(job(env={"LSB_JOBID": "7", "LSB_HOSTS": "c c d"})) == [("c", 2), ("d", 1)]


def test_lsf_launch_node_is_no_compute_node(job):
    env = {"LSB_JOBID": "7", "LSB_MCPU_HOSTS": "batch 1 e 4 f 4", "CSM_ALLOCATION_ID": "3"}
    assert hosts_of(job(env=env)) == [("e", 4), ("f", 4)]


def test_pbs(job, tmp_path):
    nodefile = tmp_path / "pbs"
    nodefile.write_text("a\na\nb\n")
    assert hosts_of(job(env={"PBS_NODEFILE": str(nodefile), "PBS_NUM_PPN": "2"})) == [("a", 2), ("b", 1)]
    nodefile.write_text("a\nb\n")
    assert hosts_of(job(env={"PBS_NODEFILE": str(nodefile), "PBS_NUM_PPN": "4"})) == [("a", 4), ("b", 4)]
    assert hosts_of(job(env={"PBS_NODEFILE": str(nodefile)})) == [("a", 1), ("b", 1)]


def test_grid_engine(job, tmp_path):
    hostfile = tmp_path / "sge"
    hostfile.write_text("a.example 4 all.q@a.example UNDEFINED\nb.example 2 all.q@b.example <NULL>\n")
    assert hosts_of(job(env={"PE_HOSTFILE": str(hostfile)})) == [("a.example", 4), ("b.example", 2)]


def random_allocation(rng):
    """Hosts, and the same in Slurm's short form, with brackets wherever the dice say so."""
    hosts, names, counts = [], [], []
    for stem in rng.sample(["a", "n-", "rack3x", "gpu", "long.name", "z9-"], rng.randint(1, 4)):
        width = rng.choice([1, 1, 2, 4])
        ranges, low = [], rng.randint(0, 3)
        for _ in range(rng.randint(1, 3)):
            high = low + rng.randint(0, 5)
            ranges.append((low, high))
            low = high + rng.randint(2, 90)
        suffix = rng.choice(["", "", "-ib", ".lan"])
        numbers = [f"{number:0{width}}" for first, last in ranges for number in range(first, last + 1)]
        text = ",".join(f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in ranges)
        # Slurm keeps numbers of different widths apart; a range whose ends differ in width is written without padding.
        if len({len(number) for number in numbers}) > 1 and width > 1:
            continue
        if len(numbers) == 1 and rng.random() < 0.5:
            names.append(f"{stem}{numbers[0]}{suffix}")
        else:
            names.append(f"{stem}[{text}]{suffix}")
        count = 0
        for number in numbers:
            count = count if count and rng.random() < 0.6 else rng.randint(1, 5)
            hosts.append((f"{stem}{number}{suffix}", count))
    if not hosts:
        return random_allocation(rng)
    for _, count in hosts:
        if counts and counts[-1][0] == count:
            counts[-1][1] += 1
        else:
            counts.append([count, 1])
    short = ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in counts)
    return hosts, ",".join(names), short


@pytest.mark.parametrize("seed", range(20))
def test_random_slurm_allocations(job, seed):
    hosts, names, counts = random_allocation(random.Random(seed))
    assert hosts_of(job(env={"SLURM_JOB_NODELIST": names, "SLURM_TASKS_PER_NODE": counts})) == hosts
