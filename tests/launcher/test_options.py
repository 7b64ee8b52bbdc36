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
    assert "Usage: horovodrun -np N [OPTIONS] COMMAND" in text
    for group in ("Job:", "Output:", "Tuning:", "Autotuning:", "Timeline:", "Stalls:", "Log:"):
        assert f"\n{group}\n" in text
    assert "--log-hide-timestamp" not in text  # deprecated
    assert "\n\n\n" not in text


@pytest.mark.parametrize(
    "spelling", [["-np", "2"], ["-n", "2"], ["-n2"], ["--num-proc", "2"], ["--num-proc=2"], ["-np=2"]]
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
    ],
)
def test_unknown_option_is_answered_with_the_closest(run, wrong, right):
    refused(run("-np", "1", wrong, "true"), f"unknown option {wrong}", f"did you mean {right}?")


def test_unique_beginning_of_an_option_is_enough(run):
    result = run("-np", "1", "--timeline-f", "t.json", "sh", "-c", "echo $HOROVOD_TIMELINE")
    assert result.stdout == b"[0]<stdout>:t.json\n"


def test_unlike_any_option(run):
    result = run("--qqqqqqqq", "true")
    refused(result, "unknown option --qqqqqqqq")
    assert b"did you mean" not in result.stderr


def test_ambiguous_beginning(run):
    refused(run("--autotune-", "1", "true"), "--autotune- could be")


@pytest.mark.parametrize("option", ["--hostfile", "-hostfile", "--min-np", "-p", "--config-file", "--mpi", "-cb"])
def test_known_but_missing_options_say_so(run, option):
    refused(run(option, "x", "true"), "not supported yet")


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


@pytest.mark.parametrize(
    "hosts", ["localhost", "localhost:", "localhost:x", "localhost:0", ":2", "a b:2", "localhost:1,", "::1:2"]
)
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
