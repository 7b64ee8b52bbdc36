"""The modules of horovod.runner that scripts and other packages import."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from horovod.common.elastic import HostUpdateResult
from horovod.runner import gloo_run, js_run, mpi_run
from horovod.runner.common.util import codec, env, host_hash, hosts, network, safe_shell_exec, secret, timeout
from horovod.runner.common.util.hosts import INVALID_SLOT_INFO, HostInfo, SlotInfo
from horovod.runner.common.util.settings import BaseSettings, Settings
from horovod.runner.elastic.discovery import FixedHosts, HostDiscoveryScript, HostManager
from horovod.runner.elastic.settings import ElasticSettings
from horovod.runner.util import cache, lsf, remote, streams, threads
from horovod.runner.util import network as util_network


def test_hosts() -> None:
    assert hosts.parse_hosts("a:1,b-2.x:12") == [HostInfo("a", 1), HostInfo("b-2.x", 12)]
    assert hosts.parse_hosts("[fe80::1]:4,me@h:2") == [HostInfo("[fe80::1]", 4), HostInfo("me@h", 2)]
    assert hosts.parse_hosts_and_slots("a:1,b:2") == (["a", "b"], {"a": 1, "b": 2})
    for wrong in ("a", "a:", ":1", "a:x", "a b:1", "", "a:1,", "::1:4"):
        with pytest.raises(ValueError, match="NAME:SLOTS"):
            hosts.parse_hosts(wrong)


def test_host_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# all of them\nworker-0 slots=4\n\nworker-1 max_slots=9 # new\nb:2\nc\n")
    assert hosts.parse_host_files(str(file)) == "worker-0:4,worker-1:9,b:2,c:1"
    file.write_text("a slots=x\n")
    with pytest.raises(ValueError, match="line 1"):
        hosts.parse_host_files(str(file))


def test_assignment() -> None:
    slots = hosts.get_host_assignments(hosts.parse_hosts("a:2,b:3,c:1"), 4)
    assert [(each.hostname, each.rank, each.local_rank, each.cross_rank) for each in slots] == [
        ("a", 0, 0, 0),
        ("a", 1, 1, 0),
        ("b", 2, 0, 1),
        ("b", 3, 1, 1),
        ("b", 4, 2, 0),
        ("c", 5, 0, 2),
    ]
    assert [(each.size, each.local_size, each.cross_size) for each in slots] == [
        (6, 2, 3),
        (6, 2, 2),
        (6, 3, 3),
        (6, 3, 2),
        (6, 3, 1),
        (6, 1, 3),
    ]
    assert len(hosts.get_host_assignments(hosts.parse_hosts("a:2,b:3"), 1, 3)) == 3
    with pytest.raises(ValueError, match="3 ranks need as many slots, but there are 2: a:2"):
        hosts.get_host_assignments(hosts.parse_hosts("a:2"), 3)


def test_assignment_is_that_of_the_program() -> None:
    code = (
        "import os; print(*(os.environ['HOROVOD_' + n] for n in "
        "('RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE')), sep=',')"
    )
    from horovod.runner.program import find

    command = [find(), "-np", "3", "-H", "localhost:3", sys.executable, "-c", code]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    expected = hosts.get_host_assignments(hosts.parse_hosts("localhost:3"), 3, 3)
    assert sorted(line.partition(":")[2] for line in lines) == [each.to_response_string() for each in expected]


def test_slots_as_text() -> None:
    slot = SlotInfo("h", 1, 2, 3, 4, 5, 6)
    assert slot.to_response_string() == "1,4,2,5,3,6"
    assert SlotInfo.from_response_string("1,4,2,5,3,6") == SlotInfo("", 1, 2, 3, 4, 5, 6)
    assert INVALID_SLOT_INFO.to_response_string() == "-1,-1,-1,-1,-1,-1"
    with pytest.raises(ValueError):
        SlotInfo.from_response_string("1,2")


@pytest.mark.parametrize("names", [("HOROVOD_RANK", "HOROVOD_SIZE"), ("PMI_RANK", "PMI_SIZE")])
def test_rank_and_size(monkeypatch: pytest.MonkeyPatch, names: tuple[str, str]) -> None:
    for pair in env._PLACES:
        for name in pair:
            monkeypatch.delenv(name, raising=False)
    assert env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setenv(names[0], "2")
    with pytest.raises(RuntimeError, match="only one of them"):
        env.get_env_rank_and_size()
    monkeypatch.setenv(names[1], "3")
    assert env.get_env_rank_and_size() == (2, 3)


def test_exportable() -> None:
    assert env.is_exportable("PATH")
    for name in ("BASH_FUNC_x%%", "OLDPWD", "MY_CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"):
        assert not env.is_exportable(name)


def test_timeout() -> None:
    fresh, over = timeout.Timeout(900, "{activity} took {timeout}"), timeout.Timeout(-1, "{activity} took {timeout}")
    assert 800 < fresh.remaining() <= 900
    fresh.check_time_out_for("meeting")
    assert (over.remaining(), over.timed_out(), fresh.timed_out()) == (0, True, False)
    with pytest.raises(timeout.TimeoutException, match="meeting took -1"):
        over.check_time_out_for("meeting")


def test_secret_and_codec() -> None:
    key = secret.make_secret_key()
    assert len(key) == secret.DIGEST_LENGTH_BYTES
    assert key != secret.make_secret_key()
    digest = secret.compute_digest(key, b"text")
    assert secret.check_digest(key, b"text", digest)
    assert not secret.check_digest(key, b"texT", digest)
    assert codec.loads_base64(codec.dumps_base64({"a": (1, 2)})) == {"a": (1, 2)}
    assert codec.loads_base64(codec.dumps_base64(lambda: 3, to_ascii=False))() == 3


def test_host_hash() -> None:
    code = "from horovod.runner.common.util.host_hash import host_hash; print(host_hash(), host_hash('s'))"
    plain, salted = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    assert (plain, salted) == (host_hash.host_hash(), host_hash.host_hash("s"))
    assert plain != salted


def test_addresses() -> None:
    assert "127.0.0.1" in network.get_local_host_addresses()
    assert "lo" in network.get_local_intfs()
    assert network.get_local_intfs("lo") == {"lo"}
    assert network.get_driver_ip(["lo"]) == "127.0.0.1"
    with pytest.raises(network.NoValidAddressesFound, match="nic7"):
        network.get_driver_ip(["nic7"])
    assert network.resolve_host_address("localhost") == "127.0.0.1"
    assert network.resolve_host_address("no.such.host.invalid") is None
    assert all(util_network.is_local(name) for name in ("localhost", "127.0.0.1", "me@localhost", "[::1]"))
    assert util_network.filter_local_addresses(["localhost", "203.0.113.7"]) == ["203.0.113.7"]
    assert network.outside_addresses(["lo"])[0] == "127.0.0.1"
    assert "127.0.0.1" not in network.outside_addresses()


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to ask how it ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_shell_command() -> None:
    out, err = io.StringIO(), io.StringIO()
    code = safe_shell_exec.execute("echo a; echo b >&2; exit 4", stdout=out, stderr=err)
    assert (code, out.getvalue(), err.getvalue()) == (4, "a\n", "b\n")
    out = io.StringIO()
    code = safe_shell_exec.execute(["sh", "-c", "echo $X; kill -9 $$"], {**os.environ, "X": "y"}, out, err, index=3)
    assert (code, out.getvalue()) == (137, "[3]<stdout>:y\n")


def test_shell_command_leaves_nothing_behind() -> None:
    out = io.StringIO()
    code = safe_shell_exec.execute("sleep 1000 >/dev/null 2>&1 & echo $!", stdout=out)
    assert code == 0
    assert has_ended(int(out.getvalue()))


def test_shell_command_is_stopped_by_an_event() -> None:
    stop = threading.Event()

    class Heard(io.StringIO):
        def write(self, text: str) -> int:
            stop.set()
            return super().write(text)

    out = Heard()
    code = safe_shell_exec.execute("sleep 1000 & echo $!; wait", stdout=out, events=[threading.Event(), stop])
    assert code == 128 + 15
    assert has_ended(int(out.getvalue()))


def test_stubborn_family_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_shell_exec, "GRACEFUL_TERMINATION_TIME_S", 0.1)
    script = "trap '' TERM; echo ready; while :; do sleep 1000; done"
    process = subprocess.Popen(script, shell=True, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    process.stdout.readline()
    safe_shell_exec.terminate_executor_shell_and_children(process.pid)
    assert process.wait(30) == -9
    process.stdout.close()


def test_in_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    thread = threads.in_thread(seen.append, (1,), name="mine")
    thread.join()
    assert (seen, thread.name, thread.daemon) == ([1], "mine", True)
    with pytest.raises(ValueError, match="did you mean"):
        threads.in_thread(seen.append, 5)
    monkeypatch.setattr(threading, "excepthook", seen.append)
    threads.in_thread(lambda: 1 / 0, silent=True).join()
    assert seen == [1]
    threads.in_thread(lambda: 1 / 0).join()
    assert len(seen) == 2


def test_many_calls() -> None:
    assert threads.execute_function_multithreaded(lambda a, b: a + b, [(1, 2), (3, 4)]) == {0: 3, 1: 7}
    assert threads.execute_function_multithreaded(len, []) == {}
    with pytest.raises(ZeroDivisionError):
        threads.execute_function_multithreaded(lambda a: 1 // a, [(1,), (0,)])
    done = threading.Barrier(3)
    assert threads.execute_function_multithreaded(done.wait, [(), ()], block_until_all_done=False) is None
    done.wait(30)


def test_failures_of_calls_nobody_waits_for_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    logged = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: logged.set()
    logging.getLogger("horovod.runner").addHandler(handler)
    try:
        threads.execute_function_multithreaded(lambda: 1 / 0, [()], block_until_all_done=False)
        assert logged.wait(30)
    finally:
        logging.getLogger("horovod.runner").removeHandler(handler)


def test_on_event() -> None:
    event, stop, called = threading.Event(), threading.Event(), threading.Event()
    threads.on_event(event, called.set)
    event.set()
    assert called.wait(30)
    called.clear()
    thread = threads.on_event(threading.Event(), called.set, stop=stop, check_stop_interval_s=0.01)
    stop.set()
    thread.join(30)
    assert not thread.is_alive() and not called.is_set()


def test_pipe() -> None:
    pipe = streams.Pipe()
    reader: list[object] = []
    thread = threads.in_thread(lambda: reader.append(pipe.read()))
    pipe.write("hello")
    thread.join(30)
    assert reader == ["hello"]
    pipe.write("abc")
    assert (pipe.read(2), pipe.read(2)) == ("ab", "c")
    assert pipe.read(timeout=0.01) is None
    pipe.write("left")
    pipe.close()
    assert (pipe.read(), pipe.read()) == ("left", None)
    with pytest.raises(ValueError):
        pipe.write("x")


def test_cache(tmp_path: Path) -> None:
    calls: list[int] = []

    @cache.use_cache()
    def double(number: int) -> int:
        calls.append(number)
        return 2 * number

    folder = str(tmp_path / "new")
    first = cache.Cache(folder, 60, "parameters")
    assert [double(3, fn_cache=first), double(3, fn_cache=first), double(3)] == [6, 6, 6]
    assert calls == [3, 3]
    assert double(3, fn_cache=cache.Cache(folder, 60, "parameters")) == 6
    assert calls == [3, 3]
    assert cache.Cache(folder, -1, "parameters").get(("x",)) is None
    double(3, fn_cache=cache.Cache(folder, 60, "others"))
    assert calls == [3, 3, 3]
    (tmp_path / "new" / "cache.json").write_text("{garbage")
    assert cache.Cache(folder, 60, "parameters").get("x") is None


def test_lsf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LSB_JOBID", raising=False)
    assert not lsf.LSFUtils.using_lsf()
    with pytest.raises(RuntimeError, match="not an LSF job"):
        lsf.LSFUtils.get_compute_hosts()
    monkeypatch.setenv("LSB_JOBID", "7")
    monkeypatch.setenv("LSB_MCPU_HOSTS", "batch 1 a 4 b 4")
    monkeypatch.setenv("PATH", "/nowhere")
    assert lsf.LSFUtils.get_compute_hosts() == ["a", "b"]
    assert (lsf.LSFUtils.get_num_hosts(), lsf.LSFUtils.get_num_cores(), lsf.LSFUtils.get_num_gpus()) == (2, 4, 0)
    assert lsf.LSFUtils.get_num_processes() == 8
    assert not js_run.is_jsrun_installed()


def test_remote_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "ssh"
    fake.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("OMPI_MCA_plm_rsh_agent", raising=False)
    command = remote.get_remote_command("echo 'a b'; ls", "me@host", 22, "my key", 2.4)
    words = subprocess.run(command, shell=True, capture_output=True, text=True).stdout.splitlines()
    assert words[-7:] == ["ConnectTimeout=2", "-p", "22", "-i", "my key", "me@host", "echo 'a b'; ls"]
    assert "StrictHostKeyChecking=no" not in command
    monkeypatch.setenv("OMPI_MCA_plm_rsh_agent", env.KUBEFLOW_MPI_EXEC)
    assert remote.get_remote_command("ls -l", "host") == "/etc/mpi/kubexec.sh host 'ls -l'"
    with pytest.raises(ValueError, match="dash"):
        remote.get_ssh_command("ls", "-oProxyCommand=x")


def test_settings(tmp_path: Path) -> None:
    file = tmp_path / "ranks"
    settings = Settings(num_proc=2, hosts="localhost:2", start_timeout=timeout.Timeout(30, ""))
    gloo_run.gloo_run(settings, None, {**os.environ, "FILE": str(file)}, None, "echo $HOROVOD_RANK >> $FILE")
    assert sorted(file.read_text().split()) == ["0", "1"]
    with pytest.raises(RuntimeError, match="exit code 9"):
        gloo_run.gloo_run(settings, None, os.environ, None, ["sh", "-c", "exit 9"])
    assert BaseSettings(num_proc=1, verbose=2, tcp_flag=True, nics={"b", "a"}).to_arguments() == [
        "--num-proc=1",
        "--verbose",
        "--network-interfaces=a,b",
        "--tcp",
    ]


def test_elastic_settings() -> None:
    settings = ElasticSettings(
        discovery=HostDiscoveryScript("./hosts.sh", 2),
        num_proc=2,
        min_num_proc=1,
        max_num_proc=4,
        cooldown_range=(1, 5),
    )
    assert settings.elastic
    assert settings.to_arguments() == [
        "--num-proc=2",
        "--host-discovery-script=./hosts.sh",
        "--min-np=1",
        "--max-np=4",
        "--slots-per-host=2",
        "--blacklist-cooldown-range",
        "1",
        "5",
    ]
    with pytest.raises(ValueError, match="HostDiscoveryScript, not a FixedHosts"):
        ElasticSettings(discovery=FixedHosts({}), num_proc=1).to_arguments()


def test_mpirun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def install(text: str) -> None:
        program = tmp_path / "mpirun"
        program.write_text(f"#!/bin/sh\necho '{text}'\n")
        program.chmod(0o755)

    kinds = (mpi_run.is_open_mpi, mpi_run.is_spectrum_mpi, mpi_run.is_mpich, mpi_run.is_intel_mpi)
    environment = {"PATH": str(tmp_path)}
    assert not mpi_run.mpi_available(environment)
    for number, text in enumerate(
        ("mpirun (Open MPI) 4.1", "IBM Spectrum MPI 10", "HYDRA build details: 4", "Intel(R) MPI Library")
    ):
        install(text)
        assert mpi_run.mpi_available(environment)
        assert [kind(environment) for kind in kinds] == [position == number for position in range(4)]


def test_discovery_script(tmp_path: Path) -> None:
    script = tmp_path / "hosts.sh"
    script.write_text("#!/bin/sh\necho a:2\necho\necho ' b '\necho a:2\n")
    script.chmod(0o755)
    assert HostDiscoveryScript(str(script), 3).find_available_hosts_and_slots() == {"a": 2, "b": 3}
    with pytest.raises(ValueError, match="' b '"):
        HostDiscoveryScript(str(script)).find_available_hosts_and_slots()
    with pytest.raises(RuntimeError, match="exit code 5: sorry"):
        HostDiscoveryScript("echo sorry >&2; exit 5").find_available_hosts_and_slots()


def test_host_manager() -> None:
    discovery = FixedHosts({"a": 1, "b": 2})
    manager = HostManager(discovery)
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    discovery.set({"c": 1, "b": 2, "a": 1})
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.current_hosts.host_assignment_order == ["a", "b", "c"]  # the oldest first
    discovery.set({"c": 1, "b": 1})
    assert manager.update_available_hosts() == HostUpdateResult.removed
    discovery.set({"c": 2, "d": 1})
    assert manager.update_available_hosts() == HostUpdateResult.mixed
    assert manager.current_hosts.available_hosts == {"c", "d"}
    assert manager.current_hosts.count_available_slots() == 3
    event = manager.get_host_event("c")
    manager.blacklist("c")
    assert event.is_set() and manager.is_blacklisted("c") and not manager.is_blacklisted("d")
    assert manager.current_hosts.host_assignment_order == ["d"]
    assert manager.current_hosts.count_available_slots() == 1
    assert manager.update_available_hosts() == HostUpdateResult.no_update


def test_cooldown() -> None:
    now = 0.0
    manager = HostManager(FixedHosts({"a": 1, "b": 1}), (10, 35), lambda: now)
    manager.update_available_hosts()
    for least, most in ((10, 20), (20, 30), (35, 35), (35, 35)):  # doubled, spread, and never above the limit
        manager.blacklist("a")
        begin = now
        now = begin + least - 0.001
        assert manager.is_blacklisted("a")
        assert manager.update_available_hosts() == HostUpdateResult.no_update
        now = begin + most + 0.001
        assert not manager.is_blacklisted("a")
        assert manager.update_available_hosts() == HostUpdateResult.added
        assert not manager.get_host_event("a").is_set()
    for wrong in ((0, 5), (1, 3601), (9, 8)):
        with pytest.raises(ValueError, match="cooldown range"):
            HostManager(FixedHosts({}), wrong)


def test_import_of_the_package_is_light() -> None:
    code = (
        "import sys, horovod; print(sorted({'argparse', 'psutil', 'yaml', 'cloudpickle', 'socket'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
