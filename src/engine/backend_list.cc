#include "engine/backend_list.h"

#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "backends/loader.h"

namespace hvd {
namespace {

BackendContext context_of(const World& world, ProcessSetTable& process_sets, Transport& transport) {
  ProcessSetTable* sets = &process_sets;
  return {.world = world,
          .members = [sets](int32_t set) { return sets->members(set).value_or(std::vector<int32_t>()); },
          .exchange = [sets](int32_t set, ByteView mine,
                             std::byte* all) { return sets->collectives(set).allgather(mine, all); },
          .adasum =
              [sets](int32_t set, std::byte* data, size_t count, DType dtype, double prescale, double postscale) {
                return sets->collectives(set).adasum(data, data, count, dtype, prescale, postscale);
              },
          .wake_others = [line = &transport] { line->waiter().wake_others(); },
          .failure = [line = &transport] { return line->failed() ? line->failure() : Status(); },
          .fail = [line = &transport](const Status& status) { line->abort(status); }};
}

}  // namespace

Result<std::unique_ptr<BackendList>> BackendList::create(const World& world, const Config& config, Transport& transport,
                                                         ProcessSetTable& process_sets, const MakePolled& make_polled) {
  auto list = std::make_unique<BackendList>();
  BackendContext context = context_of(world, process_sets, transport);
  list->context_ = context;
  auto loaded = load_backends(config.backends, context);
  if (!loaded.ok()) return loaded.status();
  list->backends_ = std::move(*loaded);
  if (make_polled) {
    auto polled = make_polled(context, transport);
    if (!polled.ok()) return polled.status();
    list->polled_ = polled->get();
    list->backends_.push_back(std::move(*polled));
  }
  ProcessSetTable* sets = &process_sets;
  list->backends_.push_back(
      std::make_unique<CpuBackend>([sets](int32_t set) -> Collectives& { return sets->collectives(set); }));
  return list;
}

void BackendList::attach_device(const MakeDevice& make) {
  owned_device_ = make(context_);
  device_.store(owned_device_.get(), std::memory_order_release);
}

Backend* BackendList::choose(const Plan& plan) const {
  if (plan.first().device != kHost && device() != nullptr && device()->accepts(plan)) return device();
  for (const std::unique_ptr<Backend>& backend : backends_) {
    if (backend->accepts(plan)) return backend.get();
  }
  return nullptr;
}

}  // namespace hvd
