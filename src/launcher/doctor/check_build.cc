#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/doctor/doctor.h"
#include "launcher/mpi/plugin.h"
#include "launcher/processes/capture.h"
#include "launcher/processes/programs.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kPythonPatience = std::chrono::seconds(20);  // for Python, on a slow network disk

struct Framework {
  const char* name;
  const char* package;  // of horovod: horovod.torch
  const char* module;   // of the framework
};

constexpr Framework kFrameworks[] = {
    {"TensorFlow", "tensorflow", "tensorflow"},
    {"PyTorch", "torch", "torch"},
    {"MXNet", "mxnet", "mxnet"},
    {"JAX", "jax", "jax"},
    {"NumPy", "numpy", "numpy"},
};

// Gloo is upstream's name for what is built in here: no MPI, shared memory and TCP.
constexpr const char* kControllers[] = {"MPI", "Gloo"};
constexpr const char* kOperations[] = {"NCCL", "DDL", "CCL", "MPI", "Gloo"};

// Prints {"python": .., "horovod": bool, "frameworks": {module: [version or null, has adapter]}, "nccl": [usable,
// text]}; the last is null if there is no library that could answer. Does not search the current folder. A distribution
// may have another name than its module, such as tensorflow-cpu.
constexpr std::string_view kScript = R"(
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.metadata, importlib.util, json, os
spec = importlib.util.find_spec("horovod")
folders = list(spec.submodule_search_locations or []) if spec else []
found = {}
for pair in sys.argv[1:]:
    package, module = pair.split("=")
    version = None
    if importlib.util.find_spec(module):
        version = ""
        for suffix in ("", "-cpu", "-gpu", "-macos", "-rocm", "-nightly"):
            try:
                version = importlib.metadata.version(module + suffix)
                break
            except importlib.metadata.PackageNotFoundError:
                pass
    adapter = any(os.path.isfile(os.path.join(folder, package, "__init__.py")) for folder in folders)
    found[module] = [version, adapter]
nccl = None
for folder in folders:
    path = os.path.join(folder, "lib", "libhorovod.so")
    if os.path.isfile(path):
        try:
            import ctypes
            text = ctypes.create_string_buffer(8192)
            usable = ctypes.CDLL(path).hvd_describe_gpus(text, len(text))
            nccl = [usable > 0, text.value.decode(errors="replace")]
        except (OSError, AttributeError):
            pass
print(json.dumps({"python": sys.version.split()[0], "horovod": bool(folders), "frameworks": found, "nccl": nccl}))
)";

struct Found {
  std::optional<std::string> version;  // of the framework; empty: installed, but without a version
  bool has_adapter = false;
};

struct PythonAnswer {
  std::string version;
  bool has_horovod = false;
  std::map<std::string, Found> frameworks;  // by module
  bool has_nccl = false;
  std::string nccl;  // which one, and for which GPUs; or why not
};

std::optional<PythonAnswer> read_answer(const std::string& text) try {
  Json json = Json::parse(text);
  PythonAnswer answer{json.at("python"), json.at("horovod"), {}, false, {}};
  for (const Framework& framework : kFrameworks) {
    const Json& found = json.at("frameworks").at(framework.module);
    Found& entry = answer.frameworks[framework.module];
    if (!found.at(0).is_null()) entry.version = found.at(0).get<std::string>();
    entry.has_adapter = found.at(1).get<bool>();
  }
  if (const Json& nccl = json.at("nccl"); !nccl.is_null()) {
    answer.has_nccl = nccl.at(0);
    answer.nccl = nccl.at(1);
  }
  return answer;
} catch (const Json::exception&) {  // a wrapper that is not Python, or one with output of its own
  return std::nullopt;
}

std::optional<PythonAnswer> ask_python(const std::string& python) {
  std::vector<std::string> command{python, "-c", std::string(kScript)};
  for (const Framework& framework : kFrameworks)
    command.push_back(fmt::format("{}={}", framework.package, framework.module));
  return read_answer(output_of(std::move(command), kPythonPatience));
}

Json describe_frameworks(PythonAnswer answer) {
  Json list = Json::array();
  for (const Framework& framework : kFrameworks) {
    const Found& found = answer.frameworks[framework.module];
    list.push_back({{"name", framework.name},
                    {"available", found.has_adapter && found.version},
                    {"version", found.version ? Json(*found.version) : Json(nullptr)},
                    {"adapter", found.has_adapter}});
  }
  return list;
}

// A library on this machine that is not part of this installation. The detail describes it, or what is missing.
struct Outside {
  bool is_available = false;
  std::string detail;
};

// MPI: with mpirun, and a library of ours that is built or can be.
Outside look_for_mpi(const std::string& program) {
  Lookup lookup = [](const char* name) -> const char* { return std::getenv(name); };
  auto mpirun = find_mpirun(lookup);
  if (!mpirun.ok()) return {};
  auto plugin = find_plugin(program, &*mpirun, lookup);
  if (!plugin.ok()) return {.detail = fmt::format("{}; {}", describe(mpirun->version), plugin.status().message())};
  return {true, fmt::format("{}, {}", describe(mpirun->version), is_built(*plugin) ? "built" : "built at first use")};
}

Json describe_parts(std::span<const char* const> names, const Outside& mpi, const Outside& nccl) {
  Json list = Json::array();
  for (std::string_view name : names) {
    Json part{{"name", name}, {"available", name == "Gloo"}};
    if (name == "MPI" || name == "NCCL") {
      const Outside& found = name == "MPI" ? mpi : nccl;
      part["available"] = found.is_available;
      if (!found.detail.empty()) part["detail"] = found.detail;
    }
    list.push_back(std::move(part));
  }
  return list;
}

std::string item_text(const Json& item) {
  bool is_available = item["available"].get<bool>();
  std::string text = fmt::format("    [{}] {}", is_available ? 'X' : ' ', item["name"].get<std::string>());
  if (item.contains("detail")) return text + fmt::format(" ({})", item["detail"].get<std::string>());
  if (!item.contains("version") || item["version"].is_null()) return text;
  auto version = item["version"].get<std::string>();
  if (!is_available) return text + fmt::format(" ({} is installed; there is no adapter for it yet)", version);
  return version.empty() ? text : text + " " + version;
}

std::string layout(const Json& report) {
  constexpr std::pair<const char*, const char*> kLists[] = {{"Available Frameworks", "frameworks"},
                                                            {"Available Controllers", "controllers"},
                                                            {"Available Tensor Operations", "operations"}};
  std::string text = fmt::format("Horovod v{}:\n", report["version"].get<std::string>());
  for (const auto& [title, key] : kLists) {
    text += fmt::format("\n{}:\n", title);
    for (const Json& item : report[key]) text += item_text(item) + "\n";
  }
  return text;
}

}  // namespace

BuildReport check_build(const std::string& program, bool json, bool verbose) {
  std::string python = find_python(program);
  std::optional<PythonAnswer> answer;
  if (!python.empty()) answer = ask_python(python);
  Json report{{"version", HVD_VERSION}, {"python", nullptr}};
  std::string note;
  if (answer) {
    report["python"] = {{"executable", python}, {"version", answer->version}};
    if (!answer->has_horovod) note = fmt::format("{} does not find the package horovod", python);
  } else {
    note = python.empty() ? "no Python beside horovodrun or in PATH, so frameworks were not checked"
                          : fmt::format("{} could not list the installed frameworks", python);
  }
  Outside nccl;
  if (answer) nccl = {answer->has_nccl, answer->nccl};
  report["frameworks"] = describe_frameworks(answer.value_or(PythonAnswer()));
  Outside mpi = look_for_mpi(program);
  report["controllers"] = describe_parts(kControllers, mpi, nccl);
  if (!mpi.is_available) mpi.detail.clear();  // already reported
  report["operations"] = describe_parts(kOperations, mpi, nccl);
  std::string text = json ? report.dump(2) + "\n" : layout(report);
  return {.text = verbose && !json ? "\n" + text : text, .note = std::move(note)};
}

}  // namespace hvd::launcher
