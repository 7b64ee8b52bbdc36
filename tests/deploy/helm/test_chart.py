"""The chart's values and what Helm makes of them, which is checked against the schemas of Kubernetes."""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import CHART, Rendered, Values, helm, refusal, render

BEGIN, END = (f"-----{word} OPENSSH PRIVATE KEY-----" for word in ("BEGIN", "END"))
KEYS = {"hostKey": f"{BEGIN}\nAAAA\n{END}", "hostKeyPub": "ssh-ed25519 AAAA demo"}
GPU = {"limits": {"nvidia.com/gpu": 4, "memory": "8Gi"}}

VALUES: dict[str, Values] = {
    "defaults": {},
    "keys": {"ssh": {"useSecrets": True, **KEYS}},
    "keys, other spelling": {"ssh": {"useSecret": True, **KEYS}},
    "host network": {"useHostNetwork": True, "useHostPID": True, "ssh": {"port": 12345}},
    "not root": {"runAsNonRoot": True, "ssh": {"port": 2222}},
    "gpus": {"resources": GPU, "shmSize": "2Gi", "worker": {"privileged": True}, "driver": {"privileged": True}},
    "everything": {
        "env": {"A": 1000000, "B": True, "SECRET": {"secretKeyRef": {"name": "s", "key": "k"}}},
        "nodeSelector": {"pool": "cpu"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "imagePullSecrets": [{"name": "registry"}],
        "datasetPvc": "mnist",
        "datasetReadOnly": True,
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "ssh": {"existingSecret": "mine", "privateKeyOnWorkers": True},
        "worker": {"number": 5, "slots": 2, "env": {"B": "worker"}, "resources": GPU, "nodeSelector": {"pool": "gpu"}},
        "driver": {"slots": 1, "args": ["horovodrun", "-np", 3, "python train.py"], "env": {"C": "driver"}},
        "networkPolicy": {"extraIngress": [{"from": [{"namespaceSelector": {}}]}]},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
    },
    "a claim": {"datasetPvc": {"enabled": True, "size": "2Ti", "storageClass": "fast", "accessMode": "ReadOnlyMany"}},
    "left empty": {
        **dict.fromkeys(["resources", "env", "nodeSelector", "tolerations", "affinity", "volumes", "volumeMounts"]),
        **dict.fromkeys(["useHostNetwork", "useHostPID", "datasetPvc", "nameOverride", "fullnameOverride"]),
        "ssh": dict.fromkeys(["useSecrets", "hostKey", "hostKeyPub"]),
        "worker": dict.fromkeys(["slots", "env", "privileged", "resources", "nodeSelector"]),
        "driver": dict.fromkeys(["slots", "args", "env", "privileged", "resources", "minWorkers"]),
    },
    "bare": {
        "rbac": {"create": False},
        "serviceAccount": {"create": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "worker": {"number": 0},
    },
}


def containers(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in spec.get("initContainers", []) + spec["containers"]}


def variables(container: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def check(values: Values, folder: Path, *options: str) -> None:
    """Against the schemas of Kubernetes, where unknown fields are mistakes."""
    manifest = folder / "manifest.yaml"
    manifest.write_text(render(values).text)
    program = str(Path(sys.executable).parent / "kubernetes-validate")
    command = [program, "--strict", "--no-warn", *options, str(manifest)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_kubernetes_takes_what_helm_renders(values: Values, tmp_path: Path) -> None:
    lint = helm("lint", "--strict", CHART, values=values)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    check(values, tmp_path)


def test_older_kubernetes_takes_it(tmp_path: Path) -> None:
    check({}, tmp_path, "--kubernetes-version", "1.25.0")  # the oldest whose schemas are at hand


@pytest.mark.parametrize("enabled", [False, True])
def test_metrics(enabled: bool, tmp_path: Path) -> None:
    values = {"metrics": {"enabled": enabled, "port": 9500}}
    check(values, tmp_path)
    rendered = render(values)
    for kind in ("StatefulSet", "Job"):
        template = rendered.find(kind, "demo-horovod")["spec"]["template"]
        annotations = {f"prometheus.io/{name}": value for name, value in (("scrape", "true"), ("port", "9500"))}
        assert template["metadata"].get("annotations") == (
            annotations | {"prometheus.io/path": "/metrics"} if enabled else None
        )
        (main,) = template["spec"]["containers"]
        assert variables(main).get("HOROVOD_METRICS_PORT") == ("9500" if enabled else None)
    ports = [port["name"] for port in rendered.find("Service", "demo-horovod")["spec"]["ports"]]
    assert ports == (["ssh", "metrics"] if enabled else ["ssh"])
    assert rendered.names("ServiceMonitor") == []


def test_service_monitor() -> None:
    monitor = {"enabled": True, "labels": {"release": "prometheus"}, "interval": "5s"}
    rendered = render({"metrics": {"enabled": True, "serviceMonitor": monitor}})
    found = rendered.find("ServiceMonitor")
    services = rendered.find("Service", "demo-horovod")["metadata"]["labels"]
    assert found["spec"]["selector"]["matchLabels"].items() <= services.items()
    assert found["spec"]["endpoints"] == [{"port": "metrics", "path": "/metrics", "interval": "5s"}]
    assert render({"metrics": {"serviceMonitor": monitor}}).names("ServiceMonitor") == []


def test_it_can_be_packaged(tmp_path: Path) -> None:
    result = helm("package", CHART, "--destination", tmp_path)
    assert result.returncode == 0, result.stderr
    (package,) = tmp_path.iterdir()
    from_package = helm("template", "demo", package, "--namespace", "lab", values={})
    assert from_package.stdout == render().text


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("demo", {}, "demo-horovod"),
        ("my-horovod", {}, "my-horovod"),
        ("demo", {"fullnameOverride": "train"}, "train"),
        ("demo", {"nameOverride": "mnist"}, "demo-mnist"),
    ],
)
def test_names(release: str, values: Values, name: str) -> None:
    rendered = render(values, release)
    assert rendered.names("StatefulSet") == rendered.names("ConfigMap") == [name]
    assert rendered.names("Service") == [name, f"{name}-driver"]
    assert name in rendered.names("Job")
    assert rendered.data()["hostfile.config"].splitlines()[0] == f"{name}-0.{name} slots=1"


def test_long_names_fit() -> None:
    rendered = render({"fullnameOverride": "x" * 63})
    assert all(len(each["metadata"]["name"]) <= 63 for each in rendered.resources)
    assert len(rendered.pod("Job", "x" * 63)["hostname"]) <= 63


def test_selectors_meet_the_pods() -> None:
    rendered = render()
    for kind, name, role in (("StatefulSet", "demo-horovod", "worker"), ("Job", "demo-horovod", "driver")):
        labels = rendered.find(kind, name)["spec"]["template"]["metadata"]["labels"]
        assert labels == {"app": "horovod", "release": "demo", "heritage": "Helm", "role": role}
    workers = {"app": "horovod", "release": "demo", "role": "worker"}
    assert rendered.find("StatefulSet")["spec"]["selector"]["matchLabels"] == workers
    assert rendered.find("Service", "demo-horovod")["spec"]["selector"] == workers
    assert rendered.find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == workers
    assert rendered.find("Service", "demo-horovod-driver")["spec"]["selector"] == workers | {"role": "driver"}
    assert "chart" in rendered.find("StatefulSet")["metadata"]["labels"]


def test_files_and_modes() -> None:
    rendered = render(VALUES["keys"])

    def files(kind: str, name: str) -> dict[str, int]:
        (volume,) = [each for each in rendered.pod(kind, name)["volumes"] if each["name"] == "generated"]
        return {item["path"]: item["mode"] for item in volume["configMap"]["items"]}

    both = {"hostfile": 0o666, "settings.sh": 0o555, "ssh.sh": 0o555, "run.sh": 0o555}
    assert files("StatefulSet", "demo-horovod") == both | {"check.sh": 0o555}
    driver = dict.fromkeys(["waitWorkersReady.sh", "discoverHosts.sh", "command.sh"], 0o555)
    assert files("Job", "demo-horovod") == both | driver
    for spec in (rendered.pod("StatefulSet"), rendered.pod("Job")):
        for container in containers(spec).values():
            mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
            assert (mounts["generated"], mounts["keys"]) == ("/horovod/generated", "/etc/secret-volume")


@pytest.mark.parametrize(
    ("values", "slots"),
    [
        ({}, 1),
        ({"resources": GPU}, 4),
        ({"resources": GPU, "worker": {"resources": {"limits": {"amd.com/gpu": "2"}}}}, 2),
        ({"resources": GPU, "worker": {"slots": 3}}, 3),
        ({"resources": {"limits": {"cpu": 8}}}, 1),
    ],
)
def test_slots_are_the_gpus_of_the_limits(values: Values, slots: int) -> None:
    data = render(values).data()
    assert data["hostfile.config"].splitlines() == [f"demo-horovod-{i}.demo-horovod slots={slots}" for i in range(3)]
    assert f"SLOTS={slots}\n" in data["settings"]


def test_the_driver_is_a_host_only_if_it_has_slots() -> None:
    rendered = render({"resources": GPU})
    assert "driver" not in rendered.data()["hostfile.config"]
    driver = containers(rendered.pod("Job", "demo-horovod"))["horovod-driver"]
    assert driver["resources"] == {"limits": {"memory": "8Gi"}}
    rendered = render({"resources": GPU, "driver": {"slots": 4}})
    assert rendered.data()["hostfile.config"].splitlines()[0] == "demo-horovod-driver slots=4"
    assert rendered.pod("Job", "demo-horovod")["hostname"] == "demo-horovod-driver"
    assert containers(rendered.pod("Job", "demo-horovod"))["horovod-driver"]["resources"] == GPU


def test_the_port_is_everywhere() -> None:
    rendered = render({"ssh": {"port": 12345}})
    for name in rendered.names("Service"):
        assert rendered.find("Service", name)["spec"]["ports"] == [{"name": "ssh", "port": 12345, "targetPort": 12345}]
    for kind, container in (("StatefulSet", "worker"), ("Job", "horovod-driver")):
        found = containers(rendered.pod(kind, "demo-horovod"))[container]
        assert found["ports"] == [{"name": "ssh", "containerPort": 12345}]
        assert variables(found)["SSHPORT"] == "12345"
    assert "SSH_PORT=12345\n" in rendered.data()["settings"]


def test_whose_keys_they_are() -> None:
    made = render()
    assert made.names("Secret") == []
    assert made.names("Job") == ["demo-horovod", "demo-horovod-make-keys", "demo-horovod-remove-keys"]
    for spelling in ("keys", "keys, other spelling"):
        given = render(VALUES[spelling])
        assert given.names("Secret") == given.names("Job") == ["demo-horovod"]
        assert set(given.find("Secret")["data"]) == {"host-key", "host-key-pub"}
        assert variables(containers(given.pod("StatefulSet"))["worker"])["USESECRETS"] == "true"
    mine = render({"ssh": {"existingSecret": "mine"}})
    assert mine.names("Job") == ["demo-horovod"]
    assert mine.names("Secret") == []


def test_the_private_key_stays_with_the_driver() -> None:
    (keys,) = [each for each in render().pod("StatefulSet")["volumes"] if each["name"] == "keys"]
    sources = [source["secret"] for source in keys["projected"]["sources"]]
    assert [item["key"] for source in sources for item in source["items"]] == ["host-key-pub", "server-key"]
    assert {source["name"] for source in sources} == {"demo-horovod-keys"}
    shared = render({"ssh": {"privateKeyOnWorkers": True}}).pod("StatefulSet")["volumes"]
    assert {"secretName": "demo-horovod-keys", "defaultMode": 0o700} in [each.get("secret") for each in shared]


def test_only_what_is_needed_is_allowed() -> None:
    rendered = render()
    assert rendered.find("Role", "demo-horovod")["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    ]
    assert rendered.pod("StatefulSet")["automountServiceAccountToken"] is False
    assert rendered.pod("Job", "demo-horovod")["serviceAccountName"] == "demo-horovod"
    ours = {"podSelector": {"matchLabels": {"app": "horovod", "release": "demo"}}}
    policy = rendered.find("NetworkPolicy")["spec"]
    assert policy == {**ours, "policyTypes": ["Ingress"], "ingress": [{"from": [ours]}]}


def test_variables_go_where_they_belong() -> None:
    rendered = render(VALUES["everything"])
    driver = containers(rendered.pod("Job", "demo-horovod"))
    worker = variables(containers(rendered.pod("StatefulSet"))["worker"])
    for found in (variables(driver["horovod-driver"]), variables(driver["wait-workers"])):
        assert (found["A"], found["B"], found["C"]) == ("1000000", "true", "driver")
        assert found["SECRET"] == {"secretKeyRef": {"name": "s", "key": "k"}}
    assert (worker["A"], worker["B"], worker["C"]) == ("1000000", "worker", "driver")


def test_places_volumes_and_data() -> None:
    rendered = render(VALUES["everything"])
    worker, driver = rendered.pod("StatefulSet"), rendered.pod("Job", "demo-horovod")
    assert (worker["nodeSelector"], driver["nodeSelector"]) == ({"pool": "gpu"}, {"pool": "cpu"})
    assert worker["tolerations"] == driver["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    for spec, name in ((worker, "worker"), (driver, "horovod-driver")):
        mounts = {mount["name"]: mount["mountPath"] for mount in containers(spec)[name]["volumeMounts"]}
        assert (mounts["dataset"], mounts["scratch"]) == ("/data", "/scratch")
        claims = [each["persistentVolumeClaim"] for each in spec["volumes"] if each["name"] == "dataset"]
        assert claims == [{"claimName": "mnist", "readOnly": True}]
    assert "scratch" not in [mount["name"] for mount in containers(driver)["wait-workers"]["volumeMounts"]]


def mounted_claims(rendered: Rendered) -> set[str]:
    """Of driver and workers, which both have it."""
    found = set()
    for spec, name in (
        (rendered.pod("StatefulSet"), "worker"),
        (rendered.pod("Job", "demo-horovod"), "horovod-driver"),
    ):
        (claim,) = [each["persistentVolumeClaim"] for each in spec["volumes"] if each["name"] == "dataset"]
        mounts = {mount["name"]: mount["mountPath"] for mount in containers(spec)[name]["volumeMounts"]}
        assert mounts["dataset"] == "/data"
        found.add(claim["claimName"])
    return found


def test_a_claim_for_the_data_is_made() -> None:
    result = helm("template", "demo", CHART, "--set", "datasetPvc.enabled=true")
    assert (result.returncode, result.stderr) == (0, "")
    rendered = Rendered(result.stdout)
    claim = rendered.find("PersistentVolumeClaim")
    assert mounted_claims(rendered) == {claim["metadata"]["name"]} == {"demo-horovod-dataset"}
    assert claim["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "10Gi"}}}
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    chosen = render(VALUES["a claim"]).find("PersistentVolumeClaim")["spec"]
    storage = {"requests": {"storage": "2Ti"}}
    assert chosen == {"accessModes": ["ReadOnlyMany"], "storageClassName": "fast", "resources": storage}
    none = render({"datasetPvc": {"enabled": True, "storageClass": "-"}}).find("PersistentVolumeClaim")["spec"]
    assert none["storageClassName"] == ""


@pytest.mark.parametrize("value", ["mnist", {"enabled": True, "existingClaim": "mnist"}])
def test_an_existing_claim_is_taken(value: Any) -> None:
    rendered = render({"datasetPvc": value})
    assert mounted_claims(rendered) == {"mnist"}
    assert rendered.names("PersistentVolumeClaim") == []


@pytest.mark.parametrize("value", ["", None, {}, {"enabled": False, "existingClaim": "mnist", "size": "1Gi"}])
def test_without_a_claim_there_is_none(value: Any) -> None:
    assert render({"datasetPvc": value}).text == render().text


FORMATS = {
    "ed25519": ["-t", "ed25519"],
    "ecdsa": ["-t", "ecdsa"],
    "ecdsa PEM": ["-t", "ecdsa", "-m", "PEM"],
    "rsa": ["-t", "rsa", "-b", "2048"],
    "rsa PEM": ["-t", "rsa", "-b", "2048", "-m", "PEM"],
    "rsa PKCS8": ["-t", "rsa", "-b", "2048", "-m", "PKCS8"],
}
TUTORIAL = "indented as in tutorials"
MANGLED: dict[str, Callable[[str], str]] = {
    "as it is": lambda key: key,
    TUTORIAL: lambda key: "".join(f"    {line}\n" for line in key.splitlines()).rstrip("\n"),
    "by tabs, behind empty lines": lambda key: "\n \n\t" + key.replace("\n", " \t\n\t"),
    "from Windows": lambda key: key.replace("\n", "\r\n"),
    "from Windows, twice": lambda key: key.replace("\n", "\r\r\n").rstrip("\r\n"),
    "from an old Mac": lambda key: key.replace("\n", "\r"),
}


@pytest.mark.parametrize(
    ("format", "mangled"),
    dict.fromkeys([*((each, TUTORIAL) for each in FORMATS), *(("rsa", each) for each in MANGLED)]),
)
def test_keys_arrive_as_ssh_takes_them(format: str, mangled: str, tmp_path: Path) -> None:
    """On the command line of Helm, as tutorials give them, and in a file of values."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "demo", "-f", key, *FORMATS[format]], check=True, timeout=60)
    public = (tmp_path / "key.pub").read_text()
    private, mangled_public = (MANGLED[mangled](text) for text in (key.read_text(), public))
    pair = {"hostKey": private, "hostKeyPub": mangled_public}
    options = [word for name, value in pair.items() for word in ("--set", f"ssh.{name}={value}")]
    by_command = helm("template", "demo", CHART, "--set", "ssh.useSecrets=true", *options)
    assert by_command.returncode == 0, by_command.stderr
    for rendered in (Rendered(by_command.stdout), render({"ssh": pair})):
        data = {name: base64.b64decode(text) for name, text in rendered.find("Secret")["data"].items()}
        arrived = tmp_path / "arrived"
        arrived.touch(0o600)
        arrived.write_bytes(data["host-key"])
        derived = subprocess.run(["ssh-keygen", "-y", "-f", arrived], capture_output=True, text=True, timeout=60)
        assert derived.stdout.split()[:2] == public.split()[:2], derived.stderr
        assert data["host-key-pub"].decode() == public


def test_a_key_without_a_value_is_not_given() -> None:
    """As in a file whose values have been removed."""
    assert render(VALUES["left empty"]).text == render().text


def test_scaling_leaves_the_driver_alone() -> None:
    """A Job's pods cannot be changed, and those of a StatefulSet that is changed are replaced."""
    few, many = render({"worker": {"number": 2}}), render({"worker": {"number": 6}})
    assert few.find("Job", "demo-horovod") == many.find("Job", "demo-horovod")
    assert few.pod("StatefulSet") == many.pod("StatefulSet")
    assert len(many.data()["hostfile.config"].splitlines()) == 6


def test_arguments_are_one_command() -> None:
    rendered = render(VALUES["everything"])
    assert rendered.data()["driver.command"] == "#!/bin/bash\nhorovodrun -np 3 python train.py\n"
    assert render().data()["driver.command"] == ""


def test_host_network_and_host_pid() -> None:
    rendered = render(VALUES["host network"])
    for spec in (rendered.pod("StatefulSet"), rendered.pod("Job", "demo-horovod")):
        assert (spec["hostNetwork"], spec["hostPID"]) == (True, True)
        assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_without_root_nothing_is_allowed() -> None:
    spec = render(VALUES["not root"]).pod("StatefulSet")
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, 10001)
    security = containers(spec)["worker"]["securityContext"]
    assert security == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"worker": {"nubmer": 3}}, "nubmer is not allowed"),
        ({"worker": {"number": -1}}, "worker.number"),
        ({"ssh": {"port": "ssh"}}, "ssh.port"),
        ({"driver": {"args": "horovodrun"}}, "driver.args"),
        ({"ssh": {"useSecrets": True}}, "needs both ssh.hostKey and ssh.hostKeyPub"),
        ({"ssh": {"hostKey": "x"}}, "needs both ssh.hostKey and ssh.hostKeyPub"),
        ({"ssh": {"existingSecret": "mine", **KEYS}}, "give either ssh.existingSecret or"),
        ({"ssh": {"hostKey": KEYS["hostKeyPub"], "hostKeyPub": KEYS["hostKeyPub"]}}, "ssh.hostKey is no private key"),
        ({"ssh": KEYS | {"hostKey": f"{BEGIN}\nAAAA"}}, "ssh.hostKey is no private key"),
        ({"ssh": KEYS | {"hostKeyPub": KEYS["hostKey"]}}, "ssh.hostKeyPub is no public key"),
        ({"datasetPvc": {"enable": True}}, "enable is not allowed"),
        ({"datasetPvc": {"enabled": True, "accessMode": "rw"}}, "datasetPvc.accessMode"),
        ({"useHostNetwork": True}, "useHostNetwork needs an ssh.port other than 22"),
        ({"runAsNonRoot": True}, "runAsNonRoot needs an ssh.port of 1024 or more"),
    ],
)
def test_mistakes_are_told(values: Values, reason: str) -> None:
    assert reason in refusal(values)


def test_the_notes_tell_what_to_do(tmp_path: Path) -> None:
    """Helm prints them only when it installs; here they are a value in a copy of the chart."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    notes = chart / "templates/NOTES.txt"
    text = f'{{{{- define "notes" }}}}{notes.read_text()}{{{{- end }}}}'
    (chart / "templates/notes.yaml").write_text(f'{text}\nkind: Notes\nnotes: {{{{ include "notes" . | quote }}}}\n')
    notes.unlink()
    only = ["--namespace", "lab", "--show-only", "templates/notes.yaml"]
    result = helm("template", "demo", chart, *only, values={"worker": {"number": 2}})
    said = yaml.safe_load(result.stdout)["notes"]
    assert "2 workers with 1 slots each are starting" in said
    assert "kubectl --namespace lab scale statefulset demo-horovod --replicas 4" in said
    assert "driver.args is empty, so the driver sleeps" in said
