"""Random command lines and configuration files against the specification, and the configuration file's errors."""

import json
import os
import random

import pytest
from specification import PAIRS, VALUES, draw_line


def write_config(path, config):
    lines = []
    for section, keys in config.items():
        lines.append(f"{section}:")
        lines += [f"  {key}: {text}" for key, text in keys.items()]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def job(run):
    def call(*arguments):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "HOROVOD_"))}
        result = run("--dry-run", *arguments, "python", "train.py", "--verbose", env=environment)
        assert result.returncode == 0, result.stderr.decode()
        return json.loads(result.stdout)

    return call


@pytest.mark.parametrize("seed", range(60))
def test_random_lines(job, tmp_path, seed):
    line = draw_line(random.Random(seed))
    words = ["-H", "a:2,b:2", *line.words, "-np", "3"]
    if line.config:
        write_config(tmp_path / "config.yaml", line.config)
        words[seed % 2 * 2 : seed % 2 * 2] = ["--config-file", str(tmp_path / "config.yaml")]
    found = job(*words)
    ours = {"num-proc": 3, "hosts": "a:2,b:2"}
    if line.config:
        ours["config-file"] = str(tmp_path / "config.yaml")
    assert found["options"] == {**line.options, **ours}
    assert found["variables"] == line.variables
    assert found["command"] == ["python", "train.py", "--verbose"]
    assert found["num_proc"] == 3


@pytest.mark.parametrize("row", VALUES, ids=lambda row: row.key)
def test_every_key_with_a_value(job, tmp_path, row):
    typed, meant = row.draw(random.Random(1))
    config = {"autotune": {"enabled": "true"}, "timeline": {"filename": "t"}}
    section, key = row.key.split(".")
    config.setdefault(section, {})[key] = f'"{typed}"'
    write_config(tmp_path / "c.yaml", config)
    assert job("-np", "1", "--config-file", str(tmp_path / "c.yaml"))["variables"][row.variable] == meant


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row.key)
@pytest.mark.parametrize("on", [True, False])
def test_every_key_of_a_switch(job, tmp_path, row, on):
    section, key = row.key.split(".")
    config = {"timeline": {"filename": "t"}}
    config.setdefault(section, {})[key] = str(on).lower()
    write_config(tmp_path / "c.yaml", config)
    found = job("-np", "1", "--config-file", str(tmp_path / "c.yaml"))["variables"]
    assert found[row.variable] == ("1" if on != row.inverted else "0")


@pytest.mark.parametrize("before", [True, False])
def test_command_line_wins_wherever_it_stands(job, tmp_path, before):
    write_config(tmp_path / "c.yaml", {"params": {"cycle_time_ms": "5", "cache_capacity": "7"}})
    file, option = ["--config-file", str(tmp_path / "c.yaml")], ["--cycle-time-ms", "2"]
    words = [*option, *file] if before else [*file, *option]
    assert job("-np", "1", *words)["variables"] == {"HOROVOD_CYCLE_TIME": "2", "HOROVOD_CACHE_CAPACITY": "7"}


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("controller: gloo", [], {"gloo"}),
        ("controller: mpi", [], {"mpi"}),
        ("controller: mpi", ["--gloo"], {"gloo"}),
        ("controller: gloo", ["--mpi"], {"mpi"}),
        ("params:\n  cycle_time_ms:\n", [], set()),
        ("", [], set()),
        ("{}", [], set()),
        ("--- # nothing\n", [], set()),
    ],
)
def test_controller_and_emptiness(job, tmp_path, text, options, expected):
    (tmp_path / "c.yaml").write_text(text)
    found = job("-np", "1", "--config-file", str(tmp_path / "c.yaml"), *options)
    assert {name for name in ("gloo", "mpi", "jsrun") if found["options"].get(name)} == expected
    assert found["variables"] == {}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("params:\n  cycle_time_ms: -1", 2, "params.cycle_time_ms -1: expected a number from 0 to 60000"),
        ("params:\n  cache_capacity: 1.5", 2, "expected a whole number, 0 or more"),
        ("autotune:\n  enabled: perhaps", 2, "autotune.enabled perhaps: expected true or false"),
        ("autotune:\n  gaussian_process_noise: 2", 2, "expected a number from 0 to 1"),
        ("autotune:\n  bayes_opt_max_samples: 1001", 2, "expected a whole number from 1 to 1000"),
        ("autotune:\n  steps_per_sample: 0", 2, "expected a whole number, 1 or more"),
        ("logging:\n  level: LOUD", 2, "expected one of TRACE, DEBUG"),
        ("\ncontroller: smtp", 2, "controller smtp: expected gloo or mpi"),
        ("params: [1, 2]", 1, "params: expected a single value"),
        ("params:\n  cycle_time_ms: {a: 1}", 2, "expected a single value"),
        ("- a\n- b", 1, "expected KEY: VALUE"),
        ("params:\n  [a]: 1", 2, "expected a name"),
        ("params:\n\tcycle_time_ms: 1", 2, "found character that cannot start any token"),
        ('params: "', 1, "unexpected end of stream"),
    ],
)
def test_bad_files(run, tmp_path, text, line, words):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    result = run("--dry-run", "-np", "1", "--config-file", str(path), "true")
    assert (result.returncode, result.stdout, result.stderr.count(b"\n")) == (2, b"", 1)
    assert f"{path}:{line}: " in result.stderr.decode()
    assert words in result.stderr.decode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("params:\n  cycle_time: 3", ":2: unknown key params.cycle_time; did you mean params.cycle_time_ms?"),
        ("param:\n  cycle_time_ms: 3", ":2: unknown key param.cycle_time_ms; did you mean params.cycle_time_ms?"),
        ("colour: red", ":1: unknown key colour"),
        ("logging:\n  hide_timestamp: true", ":2: logging.hide_timestamp is not read; use logging.with_timestamp"),
    ],
)
def test_unknown_keys_are_warned_of(run, tmp_path, text, words):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    result = run("--dry-run", "-np", "1", "--config-file", str(path), "true")
    assert result.returncode == 0
    assert result.stderr.decode() == f"horovodrun: warning: {path}{words}\n"
    assert json.loads(result.stdout)["variables"] == {}
