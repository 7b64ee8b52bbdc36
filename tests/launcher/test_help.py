"""The man page and the shell completions, made by the program and used as the tools use them."""

import pathlib
import re
import shutil
import subprocess

import pytest


@pytest.fixture(scope="module")
def options(horovodrun):
    """Every option that --help shows."""
    text = subprocess.run([horovodrun, "--help"], capture_output=True, text=True).stdout
    rows = [line for line in text.splitlines() if re.match(r"  -", line)]
    names = {name for row in rows for name in re.findall(r"(?:^  |, )(-[\w-]+)", row)}
    names |= set(re.findall(r"\(opposite:\s+(--[\w-]+)\)", text))
    assert len(names) > 80
    return sorted(names)


@pytest.fixture
def script(run, tmp_path):
    def write(shell):
        result = run("--print-completion", shell)
        assert (result.returncode, result.stderr) == (0, b"")
        path = tmp_path / f"completion.{shell}"
        path.write_bytes(result.stdout)
        return path

    return write


def needed(program):
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def bash(script, *words):
    """What bash offers for the last of `words`."""
    quoted = " ".join(f"'{word}'" for word in ("horovodrun", *words))
    show = "printf '%s\\n' \"${COMPREPLY[@]}\""
    code = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _horovodrun; {show}"
    result = subprocess.run(["bash", "--norc", "-c", code], capture_output=True, text=True)
    return sorted(result.stdout.split())


def test_bash_completes_options(script, options):
    path = script("bash")
    assert subprocess.run(["bash", "-n", path]).returncode == 0
    assert bash(path, "-") == options
    assert bash(path, "--log-w") == ["--log-with-timestamp", "--log-without-timestamp"]
    assert bash(path, "-np", "2", "--hostf") == ["--hostfile"]


def test_bash_completes_values(script, tmp_path):
    path = script("bash")
    (tmp_path / "train.yaml").touch()
    (tmp_path / "folder").mkdir()
    assert bash(path, "--bind-to", "") == ["core", "none", "numa"]
    assert bash(path, "--log-level", "W") == ["WARNING"]
    assert bash(path, "--config-file", f"{tmp_path}/tr") == [f"{tmp_path}/train.yaml"]
    assert bash(path, "--output-filename", f"{tmp_path}/") == [f"{tmp_path}/folder"]
    assert bash(path, "-np", "") == []


def test_bash_leaves_the_command_alone(script):
    path = script("bash")
    assert "bash" in bash(path, "-np", "2", "bas")
    assert bash(path, "-np", "2", "--blacklist-cooldown-range", "1", "2", "env", "--verb") == []


def test_fish_completes(script, options):
    fish = needed("fish")

    def complete(line):
        code = f"source {script('fish')}; complete -C '{line}'"
        result = subprocess.run([fish, "--no-config", "-c", code], capture_output=True, text=True)
        assert result.stderr == ""
        return [row.split("\t")[0] for row in result.stdout.splitlines()]

    assert set(complete("horovodrun --")) >= {name for name in options if name.startswith("--")}
    assert sorted(complete("horovodrun --bind-to ")) == ["core", "none", "numa"]
    assert "--verbose" not in complete("horovodrun -np 2 env --verb")


def test_zsh_completes(script, options):
    zsh = needed("zsh")
    path = script("zsh")
    assert subprocess.run([zsh, "-n", path]).returncode == 0
    offered = re.findall(r"(?m)^  '\*(-[\w-]+)\[", path.read_text())
    assert sorted(offered) == options


def test_man_page(run, options):
    groff = needed("groff")
    page = run("--print-man").stdout
    result = subprocess.run([groff, "-man", "-ww", "-Tascii", "-P-cbou"], input=page, capture_output=True)
    assert (result.returncode, result.stderr) == (0, b"")
    text = result.stdout.decode()
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "HOSTS", "EXIT STATUS", "EXAMPLES"):
        assert re.search(rf"(?m)^{section}$", text)
    shown = re.sub(r"-\n\s+", "-", text)  # what was broken at a dash
    assert [name for name in options if name not in shown] == []


def test_the_options_of_python_are_up_to_date(run):
    file = pathlib.Path(__file__).resolve().parents[2] / "python/horovod/runner/options.json"
    hint = "horovodrun --print-options > python/horovod/runner/options.json"
    assert run("--print-options").stdout.decode() == file.read_text(), hint


def test_the_page_of_the_options_is_up_to_date(run):
    page = pathlib.Path(__file__).resolve().parents[2] / "docs/options.md"
    assert run("--print-markdown").stdout.decode() == page.read_text(), "horovodrun --print-markdown > docs/options.md"
