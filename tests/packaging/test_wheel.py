"""The wheel as a user gets it: its tag, what is inside, and that it works in an environment of its own."""

import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest
from packaging.metadata import Metadata
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = "1.0.0"


# As CMake finds them for the other builds: ccache tells compilers apart by name, and pip's default is g++.
COMPILERS = {"CC": "cc", "CXX": "c++"}


def output(*command: str | pathlib.Path) -> str:
    environment = {**COMPILERS, **os.environ}
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, cwd="/", env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    output(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A fresh environment with the wheel; the packages it depends on are lent by the one that runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    site = sysconfig.get_path("purelib", vars={"base": str(folder)})
    lent = sysconfig.get_path("purelib")
    # Added as a path, not as a site directory: its .pth files, and with them the sources, stay out.
    pathlib.Path(site, "lent.pth").write_text(f"{lent}\n")
    target = ["--python", str(folder / "bin/python")]
    output(sys.executable, "-m", "pip", *target, "install", "-q", "--no-deps", "--no-index", wheel)
    return folder


def test_one_wheel_serves_every_python(wheel: pathlib.Path) -> None:
    assert re.fullmatch(rf"horovod-{VERSION}-py3-none-(manylinux|linux)_\w+\.whl", wheel.name)


def test_contents(wheel: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "horovod/__init__.py",
        "horovod/lib/libhorovod.so",
        "horovod/lib/libhorovod_tensorflow.so",
        "horovod/lib/libhorovod_mxnet.so",
    } <= names
    assert {"horovod/lib/mpi/hvd_mpi_shim.c", "horovod/lib/mpi/hvd_mpi_shim.h"} <= names
    assert f"horovod-{VERSION}.data/scripts/horovodrun" in names
    licenses = f"horovod-{VERSION}.dist-info/licenses"
    assert {f"{licenses}/LICENSE", f"{licenses}/THIRD_PARTY_NOTICES.md"} <= names
    assert {name.partition(".data/data/")[2] for name in names if ".data/data/" in name} == {
        "share/man/man1/horovodrun.1",
        "share/bash-completion/completions/horovodrun",
        "share/zsh/site-functions/_horovodrun",
        "share/fish/vendor_completions.d/horovodrun.fish",
    }
    places = r"data/scripts|data/data/share|dist-info"
    strays = [name for name in names if not re.match(rf"horovod/|horovod-{VERSION}\.({places})/", name)]
    assert strays == []
    assert [
        name for name in names if name.endswith((".a", ".o", ".cc", ".pyc")) or name.startswith("horovod/bin/")
    ] == []


def metadata_of(wheel: pathlib.Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(f"horovod-{VERSION}.dist-info/METADATA").decode()


def test_metadata_names_the_author_and_where_to_look(wheel: pathlib.Path) -> None:
    metadata = Metadata.from_email(metadata_of(wheel), validate=True)
    assert f"name: {metadata.author}" in (ROOT / "CITATION.cff").read_text()
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.project_urls is not None
    assert {"Repository", "Documentation", "Changelog", "Issues"} == set(metadata.project_urls)


def test_links_of_the_readme_leave_the_metadata(wheel: pathlib.Path) -> None:
    """They lead to files that the repository has at the tag of the release."""
    metadata = Metadata.from_email(metadata_of(wheel), validate=True)
    assert metadata.description is not None and metadata.project_urls is not None
    assert metadata.description_content_type == "text/markdown"
    links = re.findall(r"\]\(([^)]+)\)", metadata.description)
    own = rf"{metadata.project_urls['Repository']}/(?:blob|raw)/v{VERSION}/"
    paths = [re.sub(own, "", link).partition("#")[0] for link in links if re.match(own, link)]
    assert "docs/assets/idea.svg" in paths and "docs/install.md" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if not link.startswith("https://")] == []


def libraries_compiled_in() -> set[str]:
    """By the folder of their headers; those of libc and the kernel are not part of what is built."""
    found = {"yaml"}  # <yaml.h> has no folder
    for source in [*(ROOT / "src").rglob("*.h"), *(ROOT / "src").rglob("*.cc")]:
        found |= set(re.findall(r"(?m)^#include <(\w+)/", source.read_text()))
    return found - {"arpa", "gnu", "linux", "net", "netinet", "sys", "horovod"}


def test_notices_name_every_library_that_is_compiled_in() -> None:
    names = {
        "Eigen": "Eigen 3",
        "fmt": "{fmt}",
        "nlohmann": "JSON for Modern C++",
        "openssl": "OpenSSL 3",
        "yaml": "LibYAML",
    }
    assert libraries_compiled_in() == set(names)
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    assert [name for name in names.values() if f"| [{name}]" not in notices] == []


def commands_of(build: pathlib.Path) -> dict[str, str]:
    """How a build compiles each file, as ccache sees it: with paths relative to the checkout and the build."""
    listed = output("ninja", "-C", build, "-t", "compdb")
    entries = json.loads(listed[listed.index("[\n") :])
    found = {}
    for entry in entries:
        file = entry["file"].replace(f"{build}/", "")
        command = entry["command"].replace(f"{build}/", "").replace(f"{ROOT}/", "")
        if " -c " in command and file.endswith((".cc", ".cxx")):
            found[file] = command
    return found


def test_a_wheel_uses_what_make_has_compiled(wheel: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """ccache finds the objects of `make`, because every file of the wheel is compiled by the same command."""
    made = tmp_path / "release"
    output("cmake", "--preset", "release", "-S", ROOT, "-B", made)
    of_make, of_wheel = commands_of(made), commands_of(ROOT / "build/wheel")
    assert len(of_wheel) > 20
    assert {file: command for file, command in of_wheel.items() if of_make.get(file) != command} == {}


def test_requirements_are_few(wheel: pathlib.Path) -> None:
    metadata = metadata_of(wheel)
    found = re.findall(r"(?m)^Requires-Dist: (\S+)$", metadata)
    assert sorted(found) == ["cloudpickle", "numpy", "packaging", "psutil", "pyyaml"]


EXTRAS = {  # what each of them has to bring, as pip spells it
    "tensorflow": {"tensorflow"},
    "tensorflow-cpu": {"tensorflow-cpu"},
    "tensorflow-gpu": {"tensorflow"},
    "keras": {"keras", "tensorflow"},
    "pytorch": {"torch"},
    "lightning": {"pytorch-lightning", "torch"},
    "jax": {"jax"},
    "mxnet": {"mxnet", "numpy"},
    "spark": {"pyspark", "pandas", "pyarrow"},
    "pytorch-spark": {"pyspark", "pandas", "pyarrow", "torch", "pytorch-lightning"},
    "ray": {"ray"},
    "all-frameworks": {"tensorflow", "keras", "torch", "pytorch-lightning", "jax", "pyspark", "pandas", "pyarrow"},
    "test": {"pytest", "hypothesis"},
    "dev": {"build", "scikit-build-core", "ruff", "mypy", "pytest", "hypothesis"},
}


def check_extras(text: str) -> None:
    """Every extra is there under the name that users type, and brings what it says, in the same versions everywhere."""
    metadata = Metadata.from_email(text, validate=True)
    assert metadata.provides_extra is not None and metadata.requires_dist is not None
    assert set(metadata.provides_extra) == set(EXTRAS)
    versions: dict[str, set[str]] = {}
    for extra, packages in EXTRAS.items():
        asked = [each for each in metadata.requires_dist if each.marker and each.marker.evaluate({"extra": extra})]
        assert packages <= {canonicalize_name(each.name) for each in asked}, extra
        for each in asked:
            versions.setdefault(each.name, set()).add(str(each.specifier))
    assert {name: each for name, each in versions.items() if len(each) > 1} == {}
    assert versions["torch"] == {">=2.1"}
    (gpu,) = [each for each in metadata.requires_dist if each.marker and "tensorflow-gpu" in str(each.marker)]
    assert gpu.extras == {"and-cuda"}


def test_extras(wheel: pathlib.Path) -> None:
    check_extras(metadata_of(wheel))


@pytest.mark.parametrize("name", ["libhorovod", "libhorovod_tensorflow", "libhorovod_mxnet"])
def test_library_needs_libc_alone_and_exports_the_abi_alone(environment: pathlib.Path, name: str) -> None:
    (library,) = environment.glob(f"lib/python*/site-packages/horovod/lib/{name}.so")
    needed = re.findall(r"^\s*(\S+?)\.so", output("ldd", library), re.MULTILINE)
    assert {pathlib.PurePath(name).name for name in needed} <= {
        "linux-vdso",
        "libhorovod",
        "libc",
        "libm",
        "ld-linux-x86-64",
        "ld-linux-aarch64",
    }
    exported = output("nm", "-D", "--defined-only", library).split()[2::3]
    assert exported
    assert [name for name in exported if not name.startswith("hvd_")] == []


def test_package_is_imported_from_the_wheel(environment: pathlib.Path) -> None:
    where = output(environment / "bin/python", "-c", "import horovod; print(horovod.__version__, horovod.__file__)")
    assert where.startswith(f"{VERSION} {environment}/lib/")


def test_program_is_on_the_path(environment: pathlib.Path) -> None:
    program = environment / "bin/horovodrun"
    assert program.read_bytes()[:4] == b"\x7fELF"
    assert output(program, "--version") == f"{VERSION}\n"


def test_a_function_runs(environment: pathlib.Path) -> None:
    code = "import horovod; print(horovod.run(lambda: 7, num_proc=2))"
    assert output(environment / "bin/python", "-c", code) == "[7, 7]\n"


def test_module_is_the_program(environment: pathlib.Path) -> None:
    assert output(environment / "bin/python", "-m", "horovod.runner", "--version") == f"{VERSION}\n"


def test_a_job_runs(environment: pathlib.Path) -> None:
    code = "import numpy, horovod.numpy as hvd; hvd.init(); print(hvd.allreduce(numpy.ones(3), op=hvd.Sum, name='x'))"
    text = output(environment / "bin/horovodrun", "-np", "2", environment / "bin/python", "-c", code)
    assert sorted(text.splitlines()) == ["[0]<stdout>:[2. 2. 2.]", "[1]<stdout>:[2. 2. 2.]"]
