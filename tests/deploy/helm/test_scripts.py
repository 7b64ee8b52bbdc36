"""The chart's scripts: as they are rendered, by shellcheck; those that speak to Kubernetes with the real kubectl and a
small API server."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from api_server import ApiServer, pod
from chart import CHART, render

SHELLCHECK = Path(sys.executable).parent / "shellcheck"
LABELS = {"app": "horovod", "release": "demo", "role": "worker"}

needs_kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl on this machine")


def run(script: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([script], env=os.environ | variables, capture_output=True, text=True, timeout=60)


def test_scripts_are_clean(tmp_path: Path) -> None:
    """Those of both kinds of pods, with what they include, and the one that a hook runs."""
    rendered = render({"driver": {"args": ["horovodrun", "python", "train.py"]}})
    scripts = [CHART / "files/make-keys.sh", CHART / "files/doctor.sh"]
    for kind in ("StatefulSet", "Job"):
        folder = rendered.write_files(rendered.pod(kind, "demo-horovod"), tmp_path / kind)
        scripts += folder.glob("*.sh")
    command: list[str | Path] = [SHELLCHECK, "--external-sources", "--source-path=SCRIPTDIR", *scripts]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout


@needs_kubectl
def test_discovery_lists_what_is_ready_and_stays(tmp_path: Path) -> None:
    rendered = render({"worker": {"slots": 2}})
    folder = rendered.write_files(rendered.pod("Job", "demo-horovod"), tmp_path / "generated")
    with ApiServer() as api:
        variables = api.environment(tmp_path)
        nobody = run(folder / "discoverHosts.sh", **variables)
        api.pods = [
            pod("demo-horovod-10", LABELS, ready=True),
            pod("demo-horovod-2", LABELS, ready=True),
            pod("demo-horovod-1", LABELS, ready=False),
            pod("demo-horovod-0", LABELS, ready=True, deleted=True),
            pod("demo-horovod-driver", LABELS | {"role": "driver"}, ready=True),
            pod("other-horovod-0", LABELS | {"release": "other"}, ready=True),
        ]
        some = run(folder / "discoverHosts.sh", **variables)
    assert (nobody.returncode, nobody.stdout) == (0, ""), nobody.stderr
    expected = "demo-horovod-2.demo-horovod:2\ndemo-horovod-10.demo-horovod:2\n"
    assert (some.returncode, some.stdout) == (0, expected), some.stderr
    kinds = {"GET /version", "GET /api", "GET /apis", "GET /api/v1"}
    assert set(api.requests) - kinds == {"GET /api/v1/namespaces/lab/pods"}  # what the Role allows


@needs_kubectl
def test_discovery_fails_without_kubernetes(tmp_path: Path) -> None:
    """horovodrun then stays with the last good answer, while an empty one would mean that all workers are gone."""
    rendered = render()
    folder = rendered.write_files(rendered.pod("Job", "demo-horovod"), tmp_path / "generated")
    with ApiServer() as api:
        variables = api.environment(tmp_path)
    assert run(folder / "discoverHosts.sh", **variables).returncode != 0


def test_an_image_without_kubectl_is_told(tmp_path: Path) -> None:
    rendered = render()
    folder = rendered.write_files(rendered.pod("Job", "demo-horovod"), tmp_path / "generated")
    (tmp_path / "bin").mkdir()
    for program in ("bash", "dirname"):
        (tmp_path / "bin" / program).symlink_to(str(shutil.which(program)))
    result = run(folder / "discoverHosts.sh", PATH=str(tmp_path / "bin"))
    assert result.returncode == 1
    assert "there is no kubectl in this image" in result.stderr


@needs_kubectl
def test_keys_are_made_once(tmp_path: Path) -> None:
    job = render().pod("Job", "demo-horovod-make-keys")
    (container,) = job["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    with ApiServer() as api:
        environment = os.environ | variables | api.environment(tmp_path)
        for said in ("secret/demo-horovod-keys created", "demo-horovod-keys is there already"):
            result = subprocess.run(
                container["command"], env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path
            )
            assert result.returncode == 0, result.stderr
            assert said in result.stdout
    data = api.secrets["demo-horovod-keys"]["data"]
    assert set(data) == {"host-key", "host-key-pub", "server-key", "server-key-pub"}
    for name in ("host-key", "server-key"):
        assert b"OPENSSH PRIVATE KEY" in base64.b64decode(data[name])
        assert base64.b64decode(data[f"{name}-pub"]).startswith(b"ssh-ed25519 ")
    assert api.requests.count("POST /api/v1/namespaces/lab/secrets") == 1


def test_keys_of_a_secret_are_mended_and_checked(tmp_path: Path) -> None:
    """Also a secret that was not made by this chart may have indented keys; one with a passphrase is of no use."""
    keys, taken = tmp_path / "keys", tmp_path / "taken"
    keys.mkdir()
    for name, phrase in (("good", ""), ("locked", "secret"), ("server-key", "")):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", phrase, "-f", keys / name], check=True, timeout=60)
    public = (keys / "good.pub").read_text()
    (keys / "server-key.pub").rename(keys / "server-key-pub")
    (keys / "locked.pub").unlink()
    for path in keys.iterdir():
        path.write_text("\r\n".join(f"    {line}" for line in path.read_text().splitlines()))
    script = f". {CHART / 'files/ssh.sh'}; SSH_KEYS={keys} SSH_DIR={taken}; take_keys"
    result = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert f"ssh cannot use the private key {keys / 'locked'}" in result.stderr
    derived = subprocess.run(["ssh-keygen", "-y", "-f", taken / "id"], capture_output=True, text=True, timeout=60)
    assert derived.stdout.split()[:2] == public.split()[:2], derived.stderr
    assert (taken / "authorized_keys").read_text() == public
    server = subprocess.run(
        ["ssh-keygen", "-y", "-f", taken / "server_key"], capture_output=True, text=True, timeout=60
    )
    assert (taken / "known_hosts").read_text().split()[:3] == ["*", *server.stdout.split()[:2]]
