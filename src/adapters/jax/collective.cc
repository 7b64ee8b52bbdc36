#include "adapters/jax/collective.h"

#include <exception>
#include <utility>

#include "adapters/jax/behind.h"

namespace hvd::jax {
namespace {

size_t item_size(int32_t dtype) {
  switch (static_cast<hvd_dtype>(dtype)) {
    case HVD_UINT8:
    case HVD_INT8:
    case HVD_BOOL: return 1;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16: return 2;
    case HVD_INT32:
    case HVD_FLOAT32: return 4;
    case HVD_INT64:
    case HVD_FLOAT64:
    case HVD_COMPLEX64: return 8;
    case HVD_COMPLEX128: return 16;
  }
  return 16;
}

std::string text_of(int32_t ndim, const int64_t* shape) {
  std::string text = "(";
  for (int32_t i = 0; i < ndim; i++) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + ")";
}

bool is_all_ones(const std::vector<int32_t>& groups) {
  for (int32_t size : groups) {
    if (size != 1) return false;
  }
  return true;
}

}  // namespace

Collective::Collective(Call call, std::vector<hvd_tensor> inputs, std::vector<hvd_tensor> outputs)
    : call_(std::move(call)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}

Collective::~Collective() { wait_and_release(); }

void Collective::wait_and_release() noexcept {
  if (handles_.empty()) return;
  auto count = static_cast<int32_t>(handles_.size());
  hvd_wait_many(handles_.data(), count, -1);
  hvd_release_many(handles_.data(), count);
  handles_.clear();
}

void Collective::fail(hvd_code code) const {
  std::string text = hvd_last_error();
  if (code == HVD_INVALID_ARGUMENT && text.find("in flight") != std::string::npos)
    text +=
        ". In one process this happens if a computation runs on several devices or threads at once: one rank is one "
        "process with one device. Give the calls different names";
  throw CallError(code == HVD_INVALID_ARGUMENT ? kFfiInvalidArgument : kFfiAborted, text);
}

hvd_request Collective::request(size_t index) const {
  hvd_request request{.struct_size = sizeof(hvd_request),
                      .kind = call_.kind,
                      .reduce_op = call_.reduce_op,
                      .process_set = call_.process_set,
                      .root_rank = call_.root_rank,
                      .name = call_.names[index].c_str(),
                      .prescale_factor = call_.prescale_factor,
                      .postscale_factor = call_.postscale_factor,
                      .input = inputs_[index],
                      .output = outputs_[index]};
  if (engine_asks_for_memory()) request.output = {.struct_size = sizeof(hvd_tensor), .device = inputs_[index].device};
  if (!call_.splits.empty()) {
    request.splits = call_.splits.data();
    request.splits_count = static_cast<int32_t>(call_.splits.size());
  }
  return request;
}

void Collective::start(bool wait_follows) {
  if (is_on_gpu()) {
    if (hvd_code code = wait_for_names(call_.process_set, call_.names); code != HVD_OK) fail(code);
  }
  hvd_submit_options options{.struct_size = sizeof(hvd_submit_options), .wait_follows = wait_follows ? 1u : 0u};
  handles_.reserve(inputs_.size());
  if (!engine_asks_for_memory() && is_all_ones(call_.groups)) {
    std::vector<hvd_request> requests;
    requests.reserve(inputs_.size());
    for (size_t i = 0; i < inputs_.size(); i++) requests.push_back(request(i));
    handles_.resize(requests.size());
    hvd_code code = hvd_submit_many(requests.data(), static_cast<int32_t>(requests.size()), &options, handles_.data());
    if (code != HVD_OK) fail(code);
    return;
  }
  places_.reserve(call_.groups.size());  // the engine has pointers to them
  size_t first = 0;
  for (int32_t size : call_.groups) {
    std::vector<hvd_request> requests;
    for (size_t i = first; i < first + static_cast<size_t>(size); i++) requests.push_back(request(i));
    places_.push_back({.owner = this, .first = first, .problems = {}, .spare = {}});
    options.allocate = &on_allocate;
    options.allocate_context = &places_.back();
    hvd_handle handle = 0;
    hvd_code code = hvd_submit(requests.data(), size, &options, &handle);
    if (code != HVD_OK) fail(code);
    handles_.push_back(handle);
    first += static_cast<size_t>(size);
  }
}

void Collective::finish() {
  hvd_code code = hvd_wait_many(handles_.data(), static_cast<int32_t>(handles_.size()), -1);
  if (code != HVD_OK) {
    check_sizes();
    fail(code);
  }
  wait_and_release();
  check_sizes();
}

void Collective::check_sizes() const {
  for (const Place& place : places_) {
    if (!place.problems.empty()) throw CallError(kFfiInvalidArgument, place.problems.front());
  }
}

// A handle is that of one array, or that of a group.
std::vector<std::string> Collective::names_of_handle(size_t index) const {
  if (handles_.size() == call_.names.size()) return {call_.names[index]};
  size_t first = 0;
  for (size_t i = 0; i < index; i++) first += static_cast<size_t>(call_.groups[i]);
  auto begin = call_.names.begin() + static_cast<ptrdiff_t>(first);
  return {begin, begin + call_.groups[index]};
}

void Collective::finish_on_stream(void* stream) {
  if (hvd_completes_on_stream(1) == 0) return finish();
  for (hvd_handle handle : handles_) {
    if (hvd_code code = hvd_wait_on_stream(handle, stream, -1); code != HVD_OK) {
      check_sizes();
      fail(code);
    }
  }
  for (size_t i = 0; i < handles_.size(); i++) {
    keep_behind(call_.process_set, names_of_handle(i), handles_[i]);
    handles_[i] = 0;
  }
  handles_.clear();
}

void* Collective::memory_for(Place& place, size_t index, int32_t ndim, const int64_t* shape) {
  hvd_tensor& output = outputs_[index];
  bool fits = ndim == output.ndim;
  size_t bytes = item_size(output.dtype);
  for (int32_t i = 0; i < ndim; i++) {
    bytes *= static_cast<size_t>(shape[i]);
    fits = fits && shape[i] == output.shape[i];
  }
  static std::byte nothing[64];  // an empty array has no memory, but NULL would mean that allocation failed
  if (fits) return output.data != nullptr ? output.data : nothing;
  place.problems.push_back("the result of " + call_.names[index] + " has the shape " + text_of(ndim, shape) + ", but " +
                           text_of(output.ndim, output.shape) +
                           " was compiled: inside jit all ranks need the same number of rows. If the number of ranks "
                           "has changed, compile again (jax.clear_caches()); else call it outside jit");
  if (is_on_gpu()) return nullptr;  // there is no memory to spare: the operation fails on all ranks
  place.spare.push_back(std::make_unique<std::byte[]>(bytes + 1));
  return place.spare.back().get();
}

void* Collective::on_allocate(void* context, int32_t index, int32_t, int32_t ndim, const int64_t* shape) try {
  auto& place = *static_cast<Place*>(context);
  return place.owner->memory_for(place, place.first + static_cast<size_t>(index), ndim, shape);
} catch (const std::exception&) {
  return nullptr;
}

}  // namespace hvd::jax
