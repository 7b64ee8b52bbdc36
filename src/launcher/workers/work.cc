#include "launcher/workers/work.h"

#include <limits.h>
#include <unistd.h>

#include <array>

#include "launcher/workers/environment.h"

namespace hvd {

std::string current_directory() {
  std::array<char, PATH_MAX> directory{};
  return ::getcwd(directory.data(), directory.size()) == nullptr ? "" : directory.data();
}

Work work_on(const Host& host, const Options& options, const Meeting& meeting, const std::string& directory,
             bool is_here, int cores, int local_size) {
  Work work{.command = options.command, .bind_to = options.bind_to};
  if (!is_here) {
    work.directory = directory;
    work.variables = forwarded_variables(environ, host);
  }
  Variables own = job_variables(options.variables, meeting);
  work.variables.insert(work.variables.end(), own.begin(), own.end());
  work.defaults = thread_defaults(cores, local_size);
  return work;
}

}  // namespace hvd
