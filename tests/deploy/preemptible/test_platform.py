"""The platform's jobs, as its own parser and SDK see them; nothing here has an account."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DEPLOY = ROOT / "deploy/preemptible"
TAG = "horovod_instance:training"


def test_the_secondaries_are_many_and_have_the_tag_that_main_asks_for(jobs: dict[str, Any]) -> None:
    main, secondary = jobs["main"], jobs["secondary"]
    assert secondary["multi"] and secondary["detach"] and not main["multi"]
    assert secondary["tags"] == [main["env"]["HOROVOD_TAG"]] == [TAG]
    assert secondary["preset"] == "gpu-small-p" != main["preset"]
    assert main["pass_config"], "without it, the discovery script may not ask"


def test_the_key_pair_is_divided_between_the_two(jobs: dict[str, Any]) -> None:
    assert "secret:horovod-id-rsa:/root/.ssh/id_rsa" in jobs["main"]["volumes"]
    assert "secret:horovod-id-rsa-pub:/root/.ssh/authorized_keys" in jobs["secondary"]["volumes"]
    assert "secret:horovod-id-rsa:" not in str(jobs["secondary"])


def test_horovodrun_understands_the_main_job(jobs: dict[str, Any], horovodrun: str) -> None:
    script = shlex.split(jobs["main"]["cmd"])[-1]
    words = shlex.split(script[script.index("horovodrun") :])
    assert words[-2:] == ["python", "/root/app/src/train.py"]
    plan = subprocess.run([horovodrun, "--dry-run", *words[1:]], capture_output=True, text=True, timeout=60)
    assert plan.returncode == 0, plan.stderr
    assert (DEPLOY / "src/train.py").exists() and os.access(DEPLOY / "src/discover-training-hosts.py", os.X_OK)


def test_both_scripts_are_sound(jobs: dict[str, Any]) -> None:
    for job in jobs.values():
        script = shlex.split(job["cmd"])[-1]
        checked = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True, timeout=30)
        assert checked.returncode == 0, checked.stderr


def discover(platform: Path, *words: str | Path, tag: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"HOROVOD_TAG": tag}
    script = DEPLOY / "src/discover-training-hosts.py"
    return subprocess.run([platform, *words, script], env=env, capture_output=True, text=True, timeout=120)


def test_discovery_lists_running_jobs_of_the_tag_with_their_gpus(platform: Path, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(
        json.dumps(
            [
                {"host": "four-gpus", "gpus": 4, "status": "running", "tags": [TAG, "more"]},
                {"host": "no-gpu", "gpus": None, "status": "running", "tags": [TAG]},
                {"host": "", "gpus": 1, "status": "running", "tags": [TAG]},
                {"host": "pending", "gpus": 1, "status": "pending", "tags": [TAG]},
                {"host": "another-flow", "gpus": 1, "status": "running", "tags": ["horovod_instance:other"]},
            ]
        )
    )
    result = discover(platform, HERE / "with_jobs.py", file, tag=TAG)
    assert (result.stdout, result.returncode) == ("four-gpus:4\nno-gpu:1\n", 0), result.stderr


def test_discovery_says_what_it_misses(platform: Path) -> None:
    result = discover(platform, tag="")
    assert result.returncode == 1 and "HOROVOD_TAG has to name the tag" in result.stderr
