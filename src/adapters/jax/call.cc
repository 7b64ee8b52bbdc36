#include "adapters/jax/call.h"

#include <charconv>
#include <cstring>
#include <numeric>

namespace hvd::jax {
namespace {

struct TypePair {
  int xla;
  hvd_dtype hvd;
  size_t size;
};
constexpr TypePair kTypes[] = {
    {1, HVD_BOOL, 1},       {2, HVD_INT8, 1},      {3, HVD_INT16, 2},        {4, HVD_INT32, 4},
    {5, HVD_INT64, 8},      {6, HVD_UINT8, 1},     {7, HVD_UINT16, 2},       {kFfiU32, HVD_INT32, 4},
    {9, HVD_INT64, 8},      {10, HVD_FLOAT16, 2},  {11, HVD_FLOAT32, 4},     {12, HVD_FLOAT64, 8},
    {15, HVD_COMPLEX64, 8}, {16, HVD_BFLOAT16, 2}, {18, HVD_COMPLEX128, 16}, {19, HVD_UINT8, 1},
    {20, HVD_UINT8, 1},     {23, HVD_UINT8, 1},    {24, HVD_UINT8, 1},       {25, HVD_UINT8, 1},
    {28, HVD_UINT8, 1},     {29, HVD_UINT8, 1},    {33, HVD_UINT8, 1},  // float8 of all kinds
};

const TypePair& type_of(const FfiBuffer& buffer) {
  for (const TypePair& each : kTypes) {
    if (each.xla == buffer.dtype) return each;
  }
  throw CallError(kFfiInvalidArgument, "arrays of XLA's type " + std::to_string(buffer.dtype) + " cannot be sent");
}

// Finds attributes by name and type.
class Reader {
 public:
  explicit Reader(const FfiAttributes& attributes) : attributes_(attributes) {}

  int64_t integer(std::string_view name) const { return scalar<int64_t>(name); }
  double number(std::string_view name) const { return scalar<double>(name); }
  std::string_view text(std::string_view name) const {
    const auto* span = static_cast<const FfiSpan*>(find(name, kFfiString));
    return {span->data, span->size};
  }

 private:
  template <typename T>
  T scalar(std::string_view name) const {
    T value;
    std::memcpy(&value, static_cast<const FfiScalar*>(find(name, kFfiScalar))->value, sizeof value);
    return value;
  }

  const void* find(std::string_view name, int type) const {
    for (int64_t i = 0; i < attributes_.count; i++) {
      const FfiSpan& found = *attributes_.names[i];
      if (std::string_view(found.data, found.size) == name && attributes_.types[i] == type)
        return attributes_.values[i];
    }
    throw CallError(kFfiInvalidArgument, "the compiled call has no attribute " + std::string(name) +
                                             "; compile it with the same version of horovod that runs it");
  }

  const FfiAttributes& attributes_;
};

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<int32_t> split_numbers(std::string_view text) {
  std::vector<int32_t> numbers;
  const char* place = text.data();
  const char* end = place + text.size();
  while (place < end) {
    int32_t value = 0;
    auto [stop, problem] = std::from_chars(place, end, value);
    if (problem != std::errc())
      throw CallError(kFfiInvalidArgument, "the compiled call has an invalid list of numbers");
    numbers.push_back(value);
    place = stop + 1;
  }
  return numbers;
}

}  // namespace

Call read_call(const FfiFrame& frame, size_t tensors) {
  Reader read(frame.attributes);
  Call call{.kind = static_cast<hvd_kind>(read.integer("kind")),
            .reduce_op = static_cast<hvd_reduce_op>(read.integer("reduce_op")),
            .process_set = static_cast<int32_t>(read.integer("process_set")),
            .root_rank = static_cast<int32_t>(read.integer("root_rank")),
            .prescale_factor = read.number("prescale_factor"),
            .postscale_factor = read.number("postscale_factor"),
            .verb = read.text("verb"),
            .names = split_lines(read.text("names")),
            .groups = split_numbers(read.text("groups")),
            .splits = split_numbers(read.text("splits"))};
  if (call.names.size() != tensors || std::accumulate(call.groups.begin(), call.groups.end(), size_t{0}) != tensors)
    throw CallError(kFfiInvalidArgument, "the compiled call has " + std::to_string(tensors) +
                                             " arrays, but names for " + std::to_string(call.names.size()));
  return call;
}

std::span<FfiBuffer* const> buffers_of(const FfiBuffers& list) {
  return {list.buffers, static_cast<size_t>(list.count)};
}

hvd_tensor tensor_of(const FfiBuffer& buffer, const GpuPlace& place) {
  return {.struct_size = sizeof(hvd_tensor),
          .dtype = type_of(buffer).hvd,
          .device = place.ordinal,
          .ndim = static_cast<int32_t>(buffer.rank),
          .shape = buffer.dims,
          .data = buffer.data,
          .stream = place.stream};
}

size_t size_in_bytes(const FfiBuffer& buffer) {
  size_t count = type_of(buffer).size;
  for (int64_t i = 0; i < buffer.rank; i++) count *= static_cast<size_t>(buffer.dims[i]);
  return count;
}

}  // namespace hvd::jax
