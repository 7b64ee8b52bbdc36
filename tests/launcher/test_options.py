"""The command line: what is accepted, what is refused and with which words."""

import socket

import pytest


def refused(result, *words):
    assert result.returncode == 2
    text = result.stderr.decode()
    assert text.startswith("horovodrun: ")
    assert text.count("\n") == 1
    for word in words:
        assert word in text
    assert result.stdout == b""


@pytest.mark.parametrize("option", ["-v", "--version"])
def test_version_is_the_projects(run, option):
    result = run(option)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"1.0.0\n", b"")


def test_help_is_grouped_and_names_the_usage(run):
    text = run("--help").stdout.decode()
    assert "Usage: horovodrun [-np N] [OPTIONS] COMMAND" in text
    for group in (
        "Job:",
        "Hosts:",
        "Output:",
        "Tuning:",
        "Autotuning:",
        "Timeline:",
        "Stalls:",
        "Log:",
        "Elastic jobs:",
    ):
        assert f"\n{group}\n" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "--log-hide-timestamp" not in text  # deprecated
    assert "\n\n\n" not in text


@pytest.mark.parametrize(
    "spelling", [["-np", "2"], ["-n", "2"], ["-n2"], ["--num-proc", "2"], ["--num-proc=2"], ["-np=2"], ["-np2"]]
)
def test_number_of_ranks_has_many_spellings(run, spelling):
    assert run(*spelling, "echo", "x").stdout.count(b"x\n") == 2


def test_missing_number_of_ranks(run):
    refused(run("true"), "-np is required")


def test_missing_command(run):
    refused(run("-np", "2"), "no command")


@pytest.mark.parametrize("count", ["0", "-1", "two", "1.5", "99999999"])
def test_bad_number_of_ranks(run, count):
    refused(run("-np", count, "true"))


def test_option_without_its_value(run):
    refused(run("-np"), "-np needs a value")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("--vrebose", "--verbose"),
        ("--fusion-treshold-mb", "--fusion-threshold-mb"),
        ("--np", "-np"),
        ("-pn", "-np"),
        ("--tmeline", "--timeline-filename"),
        ("--netwrok-int=eth0", "--network-interfaces"),
    ],
)
def test_unknown_option_is_answered_with_the_closest(run, wrong, right):
    refused(run("-np", "1", wrong, "true"), f"unknown option {wrong.partition('=')[0]}", f"did you mean {right}?")


def test_unique_beginning_of_an_option_is_enough(run):
    result = run("-np", "1", "--timeline-f", "t.json", "sh", "-c", "echo $HOROVOD_TIMELINE")
    assert result.stdout == b"[0]<stdout>:t.json\n"


def test_unlike_any_option(run):
    result = run("--qqqqqqqq", "true")
    refused(result, "unknown option --qqqqqqqq")
    assert b"did you mean" not in result.stderr


def test_ambiguous_beginning(run):
    refused(run("--autotune-", "1", "true"), "--autotune- could be")


def test_help_and_version_end_the_reading(run):
    assert run("--help", "--nonsense").returncode == 0
    assert run("-np", "2", "--version", "--nonsense").stdout == b"1.0.0\n"
    refused(run("--nonsense", "--help"), "unknown option --nonsense")


# Every line that wrong usage is answered with: what was typed, and what the answer has to say.
WRONG = [
    (["-np", "2", "-H", "a:1", "-hostfile", "f", "true"], "-H and -hostfile exclude each other"),
    (["-np", "2", "-H", "a:1", "--host-discovery-script", "f", "true"], "exclude each other"),
    (["-np", "2", "--agents", "2", "-H", "a:1", "true"], "--agents and -H exclude each other"),
    (["-np", "2", "--gloo", "--mpi", "true"], "--gloo and --mpi exclude each other"),
    (["-np", "2", "--mpi", "--jsrun", "true"], "--mpi and --jsrun exclude each other"),
    (["-np", "2", "--log-with-timestamp", "-prefix-timestamp", "true"], "exclude each other"),
    (["-np", "2", "--log-hide-timestamp", "--log-with-timestamp", "true"], "exclude each other"),
    (
        ["-np", "2", "--stall-check", "--no-stall-check", "true"],
        "--stall-check and --no-stall-check exclude each other",
    ),
    (["-np", "2", "--jsrun", "true"], "LSB_JOBID is not set"),
    (["-np", "2", "--mpi", "--mpi-args=-x 'A", "true"], "--mpi-args: a quote is not closed in: -x 'A"),
    (["-np", "2", "--verbose=1", "true"], "--verbose takes no value"),
    (["-np", "--verbose", "true"], "-np needs a value"),
    (["-np", "1", "--output-filename", "--verbose", "true"], "--output-filename needs a value"),
    (["-np", "1", "--output-filename=", "true"], "--output-filename: its value is empty"),
    (["-np", "1", "-p", "0", "true"], "-p 0: expected a number from 1 to 65535"),
    (["-np", "1", "-p", "70000", "true"], "-p 70000: expected a number from 1 to 65535"),
    (["-np", "1", "--ssh-port", "ssh", "true"], "--ssh-port ssh: expected a number"),
    (["-np", "1", "--start-timeout", "-1", "true"], "--start-timeout -1: expected a number from 0"),
    (["-np", "1", "--bind-to", "socket", "true"], "--bind-to socket: expected one of core, numa, none"),
    (["-np", "1", "--network-interfaces", "eth0,,eth1", "true"], "expected names separated by commas"),
    (["-np", "1", "--blacklist-cooldown-range", "5", "true"], "expected two numbers from 1 to 3600"),
    (["-np", "1", "--blacklist-cooldown-range", "5"], "--blacklist-cooldown-range needs two values"),
    (["-np", "1", "--blacklist-cooldown-range", "0", "5", "true"], "from 1 to 3600"),
    (["-np", "1", "--blacklist-cooldown-range", "5", "3601", "true"], "from 1 to 3600"),
    (["-np", "1", "--blacklist-cooldown-range", "9", "5", "true"], "the smaller one first"),
    (["-np", "2", "--min-np", "3", "-H", "a:1,b:1", "true"], "--min-np 3 is more than -np 2"),
    (["-np", "2", "--min-np", "1", "--max-np", "1", "-H", "a:1,b:1", "true"], "--max-np 1 is less than -np 2"),
    (["-np", "2", "--min-np", "0", "-H", "a:1,b:1", "true"], "--min-np 0: expected a number from 1"),
    (["--host-discovery-script", "f", "true"], "-np is required"),
    (["--agents", "2", "true"], "-np is required"),
    (["-np", "1", "--json", "true"], "--json goes with --check-build, --doctor or --report"),
    (["--report-html", "r.html", "-np", "1", "true"], "--report-html goes with --report"),
    (["--report", "all.json", "true"], "--report takes no command"),
    (["--agent"], "--agent needs --rendezvous HOST:PORT"),
    (["--agent", "--agents", "2", "--rendezvous", "a:1"], "--agent and --agents exclude each other"),
    (["--agent", "--rendezvous", "a:1", "true"], "--agent takes no command"),
    (["--agent", "--rendezvous", "a"], "--rendezvous a: expected HOST:PORT"),
    (["--agent", "--rendezvous", "a:0"], "--rendezvous a:0: expected HOST:PORT"),
    (["--agent", "--rendezvous", "::1:5"], "--rendezvous ::1:5: expected HOST:PORT"),
    (["-np", "1", "--rendezvous", "a:1", "true"], "--rendezvous goes with --agent or --agents"),
    (["-np", "1", "--key-file", "k", "true"], "--key-file goes with --agent or --agents"),
    (["-np", "1", "--thread-affinity", "1,x", "true"], "--thread-affinity 1,x: expected whole numbers"),
    (["-np", "1", "--timeline-filename=", "true"], "--timeline-filename : expected a path"),
    (["-np", "1", "--config-file", "/no/such/file", "true"], "cannot read --config-file /no/such/file"),
    (["-np", "1", "--hostfile", "/no/such/file", "true"], "cannot read the host file /no/such/file"),
    (["-np", "1", "--print-completion", "tcsh"], "expected one of bash, zsh, fish"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=lambda value: " ".join(value)[:60])
def test_wrong_usage_is_one_line_that_says_what_is_wrong(run, arguments, words):
    refused(run(*arguments), words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--max-np", "4"], "--max-np has no effect without --min-np or --host-discovery-script"),
        (["--gloo", "--mpi-args=-x A"], "--mpi-args is ignored: --gloo is the launcher without MPI"),
        (["--mpi", "--min-np", "1"], "--mpi is ignored: elastic jobs are started without MPI"),
        (["--network-interface", "lo,lo"], "a list for --network-interface is deprecated, use --network-interfaces"),
        (["--no-log-hide-timestamp"], "--no-log-hide-timestamp is deprecated, use --log-without-timestamp"),
    ],
)
def test_warnings(run, options, words):
    result = run("--dry-run", "-np", "1", *options, "true")
    assert result.returncode == 0
    assert result.stderr.decode().startswith("horovodrun: warning: ")
    assert words in result.stderr.decode()


def test_everything_after_the_command_is_its_own(run):
    result = run("-np", "1", "echo", "-np", "3", "--verbose", "--", "--nonsense")
    assert result.stdout == b"[0]<stdout>:-np 3 --verbose -- --nonsense\n"


def test_double_dash_ends_the_options(run):
    assert run("-np", "1", "--", "echo", "x").stdout == b"[0]<stdout>:x\n"


def test_arguments_are_not_touched_by_a_shell(run, python):
    result = run("-np", "1", *python("import sys; print(sys.argv[1:])"), "a b", "$HOME", "*", "")
    assert result.stdout == b"[0]<stdout>:['a b', '$HOME', '*', '']\n"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", socket.gethostname()])
def test_names_of_this_machine(run, name):
    result = run("-np", "2", "-H", f"{name}:2", "sh", "-c", "echo $HOROVOD_HOSTNAME")
    assert sorted(result.stdout.decode().split()) == [f"[0]<stdout>:{name}", f"[1]<stdout>:{name}"]


@pytest.mark.parametrize("second", ["127.0.0.1", socket.gethostname(), "localhost"])
def test_names_of_this_machine_are_one_host(run, second):
    show = "echo $HOROVOD_HOSTNAME $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE"
    result = run("-np", "3", "-H", f"localhost:2,{second}:1", "sh", "-c", show)
    assert sorted(result.stdout.decode().splitlines()) == [f"[{i}]<stdout>:localhost {i}/3 0/1" for i in range(3)]


@pytest.mark.parametrize("hosts", ["localhost:", "localhost:x", "localhost:0", ":2", "a b:2", "localhost:1,", "::1:2"])
def test_bad_hosts(run, hosts):
    refused(run("-np", "1", "-H", hosts, "true"), "bad host")


def test_too_few_slots(run):
    refused(run("-np", "3", "-H", "localhost:2", "true"), "3 processes", "2 slots")


def test_more_slots_than_ranks(run):
    assert run("-np", "2", "-H", "localhost:4", "echo", "x").stdout.count(b"x\n") == 2


def test_command_that_does_not_exist(run):
    result = run("-np", "2", "/no/such/program")
    assert result.returncode == 1
    assert result.stderr == b"horovodrun: cannot run /no/such/program: No such file or directory\n"
