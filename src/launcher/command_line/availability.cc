#include "launcher/command_line/availability.h"

namespace hvd {

Status check_available(const Options& options) {
  auto not_yet = [](const char* text) { return Status(Code::unknown, text); };
  if (options.mpi) return not_yet("starting the ranks with mpirun (--mpi) is not in this version yet; leave --mpi out");
  if (options.jsrun) return not_yet("starting the ranks with jsrun is not in this version yet; leave --jsrun out");
  return {};
}

}  // namespace hvd
