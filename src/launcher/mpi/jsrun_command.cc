#include <fmt/core.h>

#include <algorithm>

#include "base/joined.h"
#include "launcher/mpi/mpi_command.h"
#include "launcher/processes/shell_words.h"

namespace hvd::launcher {

MpiStart jsrun_command(const std::string& program, const MpiJob& job, const std::string& rank_file) {
  MpiStart start{.command = {program}, .variables = job.variables};
  auto add = [&](const std::vector<std::string>& words) {
    start.command.insert(start.command.end(), words.begin(), words.end());
  };
  if (job.binding_args.empty()) {
    add({"--erf_input", rank_file});
  } else {
    add(job.binding_args);
  }
  if (!job.output_folder.empty())
    add({"--stdio_stdout", job.output_folder + "/stdout", "--stdio_stderr", job.output_folder + "/stderr"});
  std::vector<std::string> mpi = job.mpi_args;  // for Spectrum MPI
  if (job.tcp) mpi.emplace_back("-tcp");
  if (!job.interfaces.empty()) mpi.insert(mpi.end(), {"-mca", "btl_tcp_if_include", joined(job.interfaces, ",")});
  if (!mpi.empty()) add({"--smpiargs", shell_line(mpi)});
  if (job.prefix_timestamp) start.warnings.emplace_back("jsrun cannot prefix lines with the time");
  add(job.command);
  return start;
}

std::string rank_file_text(const MpiJob& job, int cores) {
  bool is_shared =
      std::any_of(job.hosts.begin(), job.hosts.end(), [&](const Host& host) { return host.slots > cores; });
  std::string text = fmt::format("overlapping_rs: {}\ncpu_index_using: logical\n\n", is_shared ? "allow" : "warn");
  int rank = 0;
  for (const Host& host : job.hosts) {
    int share = std::max(1, cores / host.slots);
    for (int i = 0; i < host.slots; ++i, ++rank) {
      int first = i * share % cores, last = first + share - 1;
      std::string range = first == last ? std::to_string(first) : fmt::format("{}-{}", first, last);
      text += fmt::format("rank: {}: {{ hostname: {}; cpu: {{{}}} ; gpu: * ; mem: * }}\n", rank, host.name, range);
    }
  }
  return text;
}

}  // namespace hvd::launcher
