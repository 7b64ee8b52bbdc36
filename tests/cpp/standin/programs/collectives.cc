// All collectives, types and operations, with results that are computed here in another way.
#include <cmath>
#include <numeric>

#include "comm.h"
#include "core/half.h"
#include "program.h"

using namespace gpu;

namespace {

constexpr size_t kCount = 37;

int rank() { return ranks::rank(); }
int size() { return ranks::size(); }

// Small integers, so that every type holds them and their sums exactly.
double value(int from, size_t index) { return static_cast<double>((from * 7 + static_cast<int>(index) * 3) % 5 + 1); }

struct TypeOf {
  int code;
  size_t bytes;
  double (*load)(const char*);
  void (*store)(char*, double);
};
template <typename T>
TypeOf plain(int code) {
  return {code, sizeof(T),
          [](const char* at) {
            T stored;
            std::memcpy(&stored, at, sizeof stored);
            return static_cast<double>(stored);
          },
          [](char* at, double number) {
            const T stored = static_cast<T>(number);
            std::memcpy(at, &stored, sizeof stored);
          }};
}
template <float (*From)(uint16_t), uint16_t (*To)(float)>
TypeOf sixteen(int code) {
  return {code, 2,
          [](const char* at) {
            uint16_t stored;
            std::memcpy(&stored, at, 2);
            return static_cast<double>(From(stored));
          },
          [](char* at, double number) {
            const uint16_t stored = To(static_cast<float>(number));
            std::memcpy(at, &stored, 2);
          }};
}
std::vector<TypeOf> types() {
  return {plain<int8_t>(nc::kInt8),
          plain<uint8_t>(nc::kUint8),
          plain<int32_t>(nc::kInt32),
          plain<uint32_t>(nc::kUint32),
          plain<int64_t>(nc::kInt64),
          plain<uint64_t>(nc::kUint64),
          plain<float>(nc::kFloat32),
          plain<double>(nc::kFloat64),
          sixteen<standin::from_half, standin::to_half>(nc::kFloat16),
          sixteen<standin::from_bfloat, standin::to_bfloat>(nc::kBfloat16)};
}

std::vector<char> packed(const TypeOf& type, int from, size_t count) {
  std::vector<char> bytes(count * type.bytes);
  for (size_t i = 0; i < count; ++i) type.store(&bytes[i * type.bytes], value(from, i));
  return bytes;
}

double reduced(int op, size_t index) {
  double result = value(0, index);
  for (int from = 1; from < size(); ++from) {
    const double other = value(from, index);
    result = op == nc::kProd  ? result * other
             : op == nc::kMax ? std::fmax(result, other)
             : op == nc::kMin ? std::fmin(result, other)
                              : result + other;
  }
  return result;
}

void compare(const TypeOf& type, uint64_t address, size_t count, void* stream, double (*expected)(int, size_t),
             int argument) {
  const auto bytes = read<char>(address, count * type.bytes, stream);
  for (size_t i = 0; i < count; ++i) {
    const double found = type.load(&bytes[i * type.bytes]), wanted = expected(argument, i);
    if (found != wanted)
      std::fprintf(stderr, "type %d argument %d element %zu: %g, expected %g\n", type.code, argument, i, found, wanted);
    EXPECT(found == wanted);
  }
}

void reductions() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  for (const TypeOf& type : types()) {
    const Buffer in(kCount * type.bytes), out(kCount * type.bytes);
    for (int op : {nc::kSum, nc::kProd, nc::kMax, nc::kMin}) {
      write(in, packed(type, rank(), kCount), stream);
      comm.done(nccl().ncclAllReduce(in.pointer(), out.pointer(), kCount, type.code, op, comm, stream));
      compare(type, out, kCount, stream, reduced, op);
      comm.done(nccl().ncclAllReduce(in.pointer(), in.pointer(), kCount, type.code, op, comm, stream));
      compare(type, in, kCount, stream, reduced, op);
      write(in, packed(type, rank(), kCount), stream);
      comm.done(nccl().ncclReduce(in.pointer(), out.pointer(), kCount, type.code, op, size() - 1, comm, stream));
      if (rank() == size() - 1) compare(type, out, kCount, stream, reduced, op);
    }
    stream.finish();
  }
}

void scattered() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  const TypeOf type = plain<float>(nc::kFloat32);
  const size_t all = kCount * static_cast<size_t>(size());
  const Buffer in(all * 4), out(kCount * 4);
  write(in, packed(type, rank(), all), stream);
  comm.done(nccl().ncclReduceScatter(in.pointer(), out.pointer(), kCount, type.code, nc::kSum, comm, stream));
  const auto shifted = [](int op, size_t index) { return reduced(op, index + kCount * static_cast<size_t>(rank())); };
  compare(type, out, kCount, stream, shifted, nc::kSum);
  // In place of its own part.
  const uint64_t part = in + kCount * 4 * static_cast<size_t>(rank());
  comm.done(
      nccl().ncclReduceScatter(in.pointer(), reinterpret_cast<void*>(part), kCount, type.code, nc::kSum, comm, stream));
  compare(type, part, kCount, stream, shifted, nc::kSum);
}

void moved() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  const TypeOf type = plain<int32_t>(nc::kInt32);
  const auto ranks = static_cast<size_t>(size());
  const Buffer in(kCount * 4 * ranks), out(kCount * 4 * ranks);
  write(in, packed(type, rank(), kCount * ranks), stream);
  comm.done(nccl().ncclAllGather(in.pointer(), out.pointer(), kCount, type.code, comm, stream));
  for (size_t from = 0; from < ranks; ++from)
    compare(type, out + from * kCount * 4, kCount, stream, value, static_cast<int>(from));
  comm.done(nccl().ncclBroadcast(in.pointer(), out.pointer(), kCount, type.code, size() - 1, comm, stream));
  compare(type, out, kCount, stream, value, size() - 1);
  // Everybody sends part p to rank p, in one group, the own part included.
  NC(ncclGroupStart());
  for (size_t peer = 0; peer < ranks; ++peer) {
    nccl().ncclSend(static_cast<char*>(in.pointer()) + peer * kCount * 4, kCount, type.code, static_cast<int>(peer),
                    comm, stream);
    nccl().ncclRecv(static_cast<char*>(out.pointer()) + peer * kCount * 4, kCount, type.code, static_cast<int>(peer),
                    comm, stream);
  }
  comm.done(nccl().ncclGroupEnd());
  const auto mine = [](int from, size_t index) { return value(from, index + kCount * static_cast<size_t>(rank())); };
  for (size_t from = 0; from < ranks; ++from)
    compare(type, out + from * kCount * 4, kCount, stream, mine, static_cast<int>(from));
  // Several collectives, one launch.
  NC(ncclGroupStart());
  for (int root = 0; root < size(); ++root) {
    char* place = static_cast<char*>(out.pointer()) + static_cast<size_t>(root) * kCount * 4;
    nccl().ncclBroadcast(in.pointer(), place, kCount, type.code, root, comm, stream);
  }
  comm.done(nccl().ncclGroupEnd());
  for (size_t from = 0; from < ranks; ++from)
    compare(type, out + from * kCount * 4, kCount, stream, value, static_cast<int>(from));
}

// Average: 1/n rounded to the type, then the sum. Integers: the sum, then the division.
void averages() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  for (const TypeOf& type : types()) {
    const Buffer in(kCount * type.bytes);
    write(in, packed(type, rank(), kCount), stream);
    comm.done(nccl().ncclAllReduce(in.pointer(), in.pointer(), kCount, type.code, nc::kAvg, comm, stream));
    const bool floats = type.code >= nc::kFloat16;
    const auto bytes = read<char>(in, kCount * type.bytes, stream);
    for (size_t i = 0; i < kCount; ++i) {
      char rounded[8] = {};
      type.store(rounded, 1.0 / size());
      const double factor = type.load(rounded);
      double wanted = 0;
      for (int from = 0; from < size(); ++from) {
        type.store(rounded, floats ? value(from, i) * factor : value(from, i));
        type.store(rounded, from == 0 ? type.load(rounded) : wanted + type.load(rounded));
        wanted = type.load(rounded);
      }
      if (!floats) wanted = std::trunc(wanted / size());
      EXPECT(type.load(&bytes[i * type.bytes]) == wanted);
    }
  }
}

void scaled_sums() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  const Buffer in(kCount * 4);
  float factor = 0.5F * static_cast<float>(rank() + 1);
  int op = -1;
  NC(ncclRedOpCreatePreMulSum(&op, &factor, nc::kFloat32, 1, comm));
  write(in, packed(plain<float>(nc::kFloat32), rank(), kCount), stream);
  comm.done(nccl().ncclAllReduce(in.pointer(), in.pointer(), kCount, nc::kFloat32, op, comm, stream));
  NC(ncclRedOpDestroy(op, comm));
  const auto expected = [](int, size_t index) {
    double sum = 0;
    for (int from = 0; from < size(); ++from) sum += value(from, index) * 0.5 * (from + 1);
    return sum;
  };
  compare(plain<float>(nc::kFloat32), in, kCount, stream, expected, 0);
  EXPECT_CODE(nc::kInvalidArgument,
              nccl().ncclAllReduce(in.pointer(), in.pointer(), kCount, nc::kFloat32, op, comm, stream));
}

// Larger than the chunks in flight, and nothing at all.
void large_and_empty() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  constexpr size_t kLarge = 1000003;
  const Buffer in(kLarge * 4);
  std::vector<float> values(kLarge);
  for (size_t i = 0; i < kLarge; ++i) values[i] = static_cast<float>(i % 1000) + static_cast<float>(rank());
  write(in, values, stream);
  comm.done(nccl().ncclAllReduce(in.pointer(), in.pointer(), kLarge, nc::kFloat32, nc::kSum, comm, stream));
  comm.done(nccl().ncclAllReduce(nullptr, nullptr, 0, nc::kFloat32, nc::kSum, comm, stream));
  const auto result = read<float>(in, kLarge, stream);
  const float ranks = static_cast<float>(size());
  for (size_t i = 0; i < kLarge; ++i)
    EXPECT(result[i] == static_cast<float>(i % 1000) * ranks + ranks * (ranks - 1) / 2);
}

void split_by_parity() {
  const Device device(rank());
  const Comm comm;
  const Stream stream;
  void* half = nullptr;
  comm.done(nccl().ncclCommSplit(comm, rank() % 2, -rank(), &half, nullptr));
  EXPECT_CODE(0, settled(half, nc::kInProgress));
  int members = 0, place = -1;
  NC(ncclCommCount(half, &members));
  NC(ncclCommUserRank(half, &place));
  EXPECT(members == (size() + 1 - rank() % 2) / 2);
  EXPECT(place == members - 1 - rank() / 2);  // in the order of the keys
  const Buffer in(8);
  write(in, std::vector<int64_t>{rank()}, stream);
  EXPECT_CODE(0,
              settled(half, nccl().ncclAllReduce(in.pointer(), in.pointer(), 1, nc::kInt64, nc::kSum, half, stream)));
  int64_t sum = 0;
  for (int from = rank() % 2; from < size(); from += 2) sum += from;
  EXPECT(read<int64_t>(in, 1, stream)[0] == sum);
  EXPECT_CODE(0, settled(half, nccl().ncclCommFinalize(half)));
  NC(ncclCommDestroy(half));
}

void blocking_communicators() {
  const Device device(rank());
  const Comm comm(true);
  const Stream stream;
  const Buffer in(kCount * 4);
  write(in, packed(plain<float>(nc::kFloat32), rank(), kCount), stream);
  NC(ncclAllReduce(in.pointer(), in.pointer(), kCount, nc::kFloat32, nc::kSum, comm, stream));
  compare(plain<float>(nc::kFloat32), in, kCount, stream, reduced, nc::kSum);
}

}  // namespace

std::vector<Program> collective_programs() {
  return {
      {"reductions", 3, "", reductions},
      {"scattered", 3, "", scattered},
      {"moved", 3, "", moved},
      {"averages", 3, "", averages},
      {"scaled_sums", 3, "", scaled_sums},
      {"large_and_empty", 2, "", large_and_empty},
      {"split_by_parity", 3, "", split_by_parity},
      {"blocking_communicators", 2, "", blocking_communicators},
  };
}
