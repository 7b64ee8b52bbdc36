#include "launcher/environment.h"

#include <fmt/core.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/joined.h"

namespace hvd {

Result<std::string> random_key() {
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return system_error("cannot make the job's key", "getrandom");
  return joined(bytes, "", "{:02x}");
}

std::vector<std::string> worker_environment(char* const* inherited, const Variables& variables, const Slot& slot,
                                            const Meeting& meeting, int cores) {
  std::map<std::string, std::string, std::less<>> all;
  // Without this every worker would start a thread per core; BLAS libraries and torch heed it too. A user's value
  // stays.
  all["OMP_NUM_THREADS"] = std::to_string(std::max(1, cores / slot.local_size));
  for (char* const* entry = inherited; *entry; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=', 1);
    if (equals != std::string_view::npos)
      all.insert_or_assign(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  for (const auto& [name, value] : variables) all[name] = value;
  all["HOROVOD_HOSTNAME"] = slot.host;
  all["HOROVOD_RANK"] = std::to_string(slot.rank);
  all["HOROVOD_SIZE"] = std::to_string(slot.size);
  all["HOROVOD_LOCAL_RANK"] = std::to_string(slot.local_rank);
  all["HOROVOD_LOCAL_SIZE"] = std::to_string(slot.local_size);
  all["HOROVOD_CROSS_RANK"] = std::to_string(slot.cross_rank);
  all["HOROVOD_CROSS_SIZE"] = std::to_string(slot.cross_size);
  all["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = meeting.address;
  all["HOROVOD_GLOO_RENDEZVOUS_PORT"] = std::to_string(meeting.port);
  all["HOROVOD_CONTROLLER"] = "gloo";
  all["HOROVOD_CPU_OPERATIONS"] = "gloo";
  all["PYTHONUNBUFFERED"] = "1";
  all["_HOROVOD_SECRET_KEY"] = meeting.key;
  std::vector<std::string> strings;
  strings.reserve(all.size());
  for (const auto& [name, value] : all) strings.push_back(fmt::format("{}={}", name, value));
  return strings;
}

}  // namespace hvd
