#include "launcher/check_build.h"

#include <fmt/core.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "launcher/python.h"

namespace hvd {
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

struct Part {
  const char* name;
  bool is_available;
};

// Gloo is upstream's name for what is built in here: no MPI, shared memory and TCP.
constexpr Part kControllerParts[] = {{"MPI", false}, {"Gloo", true}};
constexpr Part kOperationParts[] = {{"NCCL", false}, {"DDL", false}, {"CCL", false}, {"MPI", false}, {"Gloo", true}};

// Prints {"python": .., "horovod": bool, "frameworks": {module: [version or null, has adapter]}}. The folder that we
// are started in is not searched. A distribution may have another name than its module, as tensorflow-cpu.
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
print(json.dumps({"python": sys.version.split()[0], "horovod": bool(folders), "frameworks": found}))
)";

struct Found {
  std::optional<std::string> version;  // of the framework; empty: there, but it does not say which
  bool has_adapter = false;
};

struct PythonAnswer {
  std::string version;
  bool has_horovod = false;
  std::map<std::string, Found> frameworks;  // by module
};

std::optional<PythonAnswer> read_answer(const std::string& text) try {
  Json json = Json::parse(text);
  PythonAnswer answer{json.at("python"), json.at("horovod"), {}};
  for (const Framework& framework : kFrameworks) {
    const Json& found = json.at("frameworks").at(framework.module);
    Found& entry = answer.frameworks[framework.module];
    if (!found.at(0).is_null()) entry.version = found.at(0).get<std::string>();
    entry.has_adapter = found.at(1).get<bool>();
  }
  return answer;
} catch (const Json::exception&) {  // a wrapper that is no Python, or one that prints something of its own
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

template <class Parts>
Json describe_parts(const Parts& parts) {
  Json list = Json::array();
  for (const Part& part : parts) list.push_back({{"name", part.name}, {"available", part.is_available}});
  return list;
}

std::string item_text(const Json& item) {
  bool is_available = item["available"].get<bool>();
  std::string text = fmt::format("    [{}] {}", is_available ? 'X' : ' ', item["name"].get<std::string>());
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
    note = python.empty() ? "no Python beside horovodrun or in PATH, so frameworks were not looked for"
                          : fmt::format("{} could not say which frameworks there are", python);
  }
  report["frameworks"] = describe_frameworks(answer.value_or(PythonAnswer()));
  report["controllers"] = describe_parts(kControllerParts);
  report["operations"] = describe_parts(kOperationParts);
  std::string text = json ? report.dump(2) + "\n" : layout(report);
  return {.text = verbose && !json ? "\n" + text : text, .note = std::move(note)};
}

}  // namespace hvd
