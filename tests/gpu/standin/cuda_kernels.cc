// Modules and kernels.
#include <cstdio>
#include <cstring>
#include <set>

#include "core/ptx.h"
#include "cuda_call.h"

using namespace standin;

namespace {

struct LoadedModule {
  std::shared_ptr<ptx::Module> text;
  Context* context;
  Stack stack;
  bool unloaded = false;
};
struct Function {
  std::shared_ptr<ptx::Kernel> kernel;
  LoadedModule* module;
};

struct Modules {
  std::set<void*> modules, functions;  // guarded by core().mutex; never freed, so that late uses are recognised
};
Modules& all() {
  static Modules& value = *new Modules;
  return value;
}

Function* as_function(void* handle) {
  if (!all().functions.contains(handle)) return nullptr;
  auto* function = static_cast<Function*>(handle);
  return function->module->unloaded ? nullptr : function;
}

// The newest PTX that a driver of this version takes: CUDA 11.0 has 7.0, 12.0 has 8.0, and so on.
int ptx_limit() { return (settings().driver_version / 1000 - 4) * 10 + settings().driver_version % 1000 / 10; }

std::vector<char> copied(const ptx::Kernel& kernel, void** values) {
  std::vector<char> parameters(kernel.parameter_bytes);
  for (size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(parameters.data() + kernel.parameters[i].first, values[i], kernel.parameters[i].second);
  return parameters;
}

}  // namespace

namespace standin {

std::string list_modules() {
  std::string text;
  const std::lock_guard lock(core().mutex);
  for (void* handle : all().modules) {
    const auto& module = *static_cast<LoadedModule*>(handle);
    if (!module.unloaded) text += "  module, loaded in\n" + to_text(module.stack);
  }
  return text;
}

}  // namespace standin

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  STANDIN_ENTER_CONTEXT("cuModuleLoadDataEx");
  count(&Counts::module_loads);
  const Stack stack = here();
  std::string reason;
  const auto text = ptx::parse(static_cast<const char*>(image), &reason);
  if (text == nullptr) {
    violation("PTX that the stand-in does not understand: " + reason + "\n" + to_text(stack));
    return cuda::kInvalidPtx;
  }
  if (text->version > ptx_limit()) return cuda::kUnsupportedPtx;
  const std::lock_guard lock(core().mutex);
  auto* made = new LoadedModule{.text = text, .context = current_context(), .stack = stack};
  all().modules.insert(made);
  *module = made;
  return 0;
}

int cuModuleGetFunction(void** function, void* handle, const char* name) {
  STANDIN_ENTER_CONTEXT("cuModuleGetFunction");
  const std::lock_guard lock(core().mutex);
  if (!all().modules.contains(handle)) return cuda::kInvalidHandle;
  auto* module = static_cast<LoadedModule*>(handle);
  const auto found = module->text->kernels.find(name);
  if (found == module->text->kernels.end()) return cuda::kNotFound;
  auto* made = new Function{.kernel = found->second, .module = module};
  all().functions.insert(made);
  *function = made;
  return 0;
}

int cuModuleUnload(void* handle) {
  STANDIN_ENTER_CONTEXT("cuModuleUnload");
  const std::lock_guard lock(core().mutex);
  if (!all().modules.contains(handle)) return cuda::kInvalidHandle;
  static_cast<LoadedModule*>(handle)->unloaded = true;
  return 0;
}

int cuLaunchKernel(void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned,
                   void* stream_handle, void** values, void** extra) {
  STANDIN_ENTER_CONTEXT("cuLaunchKernel");
  count(&Counts::kernels);
  if (settings().count_only) return 0;
  const Stack stack = here();
  if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || gy > 65535 || gz > 65535 ||
      uint64_t{bx} * by * bz > 1024 || extra != nullptr)
    return cuda::kInvalidValue;
  const std::lock_guard lock(core().mutex);
  Function* function = as_function(handle);
  int code = 0;
  Stream* stream = launch_stream(stream_handle, "cuLaunchKernel", &code);
  if (stream == nullptr) return code;
  if (function == nullptr || function->module->context != stream->context) {
    violation("cuLaunchKernel: the function is none, or its module is unloaded or of another GPU\n" + to_text(stack));
    return cuda::kInvalidHandle;
  }
  const ptx::Shape shape{{gx, gy, gz}, {bx, by, bz}};
  launch(*stream, host_site("cuLaunchKernel", stack), "kernel " + function->kernel->name, {},
         [kernel = function->kernel, shape, parameters = copied(*function->kernel, values)](const SitePointer& site) {
           ptx::run(*kernel, shape, parameters, site);
         });
  return 0;
}
