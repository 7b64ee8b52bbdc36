#include "adapters/jax/behind.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace hvd::jax {
namespace {

struct Kept {
  explicit Kept(hvd_handle of) : handle(of) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() { hvd_release(handle); }
  const hvd_handle handle;
};

using WireName = std::pair<int32_t, std::string>;  // with the process set

// Never destroyed: XLA's threads may still run calls while the process ends.
struct BehindTable {
  std::mutex mutex;                                // guards what follows
  std::deque<std::shared_ptr<Kept>> oldest_first;  // they mostly end in this order
  std::map<WireName, std::weak_ptr<Kept>> by_name;
};
BehindTable& behind_table() {
  static BehindTable& table = *new BehindTable;
  return table;
}

std::shared_ptr<Kept> kept_of(int32_t process_set, const std::string& name) {
  std::scoped_lock lock(behind_table().mutex);
  auto& by_name = behind_table().by_name;
  auto found = by_name.find({process_set, name});
  return found != by_name.end() ? found->second.lock() : nullptr;
}

}  // namespace

hvd_code wait_for_names(int32_t process_set, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    std::shared_ptr<Kept> kept = kept_of(process_set, name);
    if (kept == nullptr) continue;
    if (hvd_code code = hvd_wait(kept->handle, -1); code != HVD_OK) return code;
  }
  return HVD_OK;
}

void keep_behind(int32_t process_set, const std::vector<std::string>& names, hvd_handle handle) {
  BehindTable& table = behind_table();
  std::scoped_lock lock(table.mutex);
  while (!table.oldest_first.empty() && hvd_poll(table.oldest_first.front()->handle) != 0)
    table.oldest_first.pop_front();
  auto kept = std::make_shared<Kept>(handle);
  for (const std::string& name : names) table.by_name[{process_set, name}] = kept;
  table.oldest_first.push_back(std::move(kept));
}

void forget_behind() {
  BehindTable& table = behind_table();
  std::scoped_lock lock(table.mutex);
  table.by_name.clear();
  table.oldest_first.clear();
}

}  // namespace hvd::jax
