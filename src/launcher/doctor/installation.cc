#include "launcher/doctor/probe.h"
#include "launcher/processes/capture.h"
#include "launcher/processes/programs.h"

namespace hvd::launcher {
namespace {

// The version is read without importing the package, because an import may have side effects.
constexpr std::string_view kVersionScript = R"(
import sys
sys.path[:] = [path for path in sys.path if path]
import importlib.metadata, importlib.util, json, os, re
spec = importlib.util.find_spec("horovod")
folder, version = "", ""
if spec:
    folder = next(iter(spec.submodule_search_locations or []), "")
    try:
        with open(os.path.join(folder, "__init__.py"), encoding="utf-8") as file:
            found = re.search(r'^__version__\s*=\s*["\']([^"\']+)', file.read(), re.MULTILINE)
        version = found.group(1) if found else importlib.metadata.version("horovod")
    except Exception:
        version = "unknown"
print(json.dumps({"python": sys.version.split()[0], "folder": folder, "version": version}))
)";

// For a wrapper that is not Python, or one with output of its own, everything stays empty.
void take_answer(const std::string& text, Installation& found, std::string& folder) try {
  Json answer = Json::parse(text);
  folder = answer.at("folder");
  found.package = answer.at("version");
  found.python_version = answer.at("python");
} catch (const Json::exception&) {
}

}  // namespace

Installation find_installation(const std::string& program, Duration patience) {
  Installation found{.horovodrun = HVD_VERSION};
  found.python = find_python(program);
  std::string folder;
  if (!found.python.empty())
    take_answer(output_of({found.python, "-c", std::string(kVersionScript)}, patience), found, folder);
  found.library = library_of(folder);
  return found;
}

}  // namespace hvd::launcher
