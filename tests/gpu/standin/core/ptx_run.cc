#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/half.h"
#include "core/memory.h"
#include "core/ptx.h"
#include "core/settings.h"
#include "cuda_declarations.h"

namespace standin::ptx {
namespace {

// The bytes that one launch reads or writes, merged into ranges.
class Ranges {
 public:
  void add(uint64_t address, size_t bytes) {
    if (!list_.empty() && list_.back().second == address) {
      list_.back().second += bytes;
    } else {
      list_.emplace_back(address, address + bytes);
      if (list_.size() > limit_) merge();
    }
  }
  const std::vector<std::pair<uint64_t, uint64_t>>& merged() {
    merge();
    return list_;
  }

 private:
  void merge() {
    std::sort(list_.begin(), list_.end());
    size_t last = 0;
    for (size_t i = 1; i < list_.size(); ++i) {
      if (list_[i].first <= list_[last].second) {
        list_[last].second = std::max(list_[last].second, list_[i].second);
      } else {
        list_[++last] = list_[i];
      }
    }
    if (!list_.empty()) list_.resize(last + 1);
    limit_ = std::max<size_t>(1 << 16, 2 * list_.size());
  }

  std::vector<std::pair<uint64_t, uint64_t>> list_;  // begin and end
  size_t limit_ = 1 << 16;
};

struct Launch {
  const Kernel& kernel;
  const std::vector<char>& parameters;
  SitePointer site;
  Ranges read, written;
  std::shared_ptr<Allocation> recent[2];  // of reads, of writes
  int error = 0;

  void fail(int code, const Instruction& at, uint64_t address, const char* why) {
    char text[160];
    std::snprintf(text, sizeof text, "kernel %s: %s at 0x%llx in: ", kernel.name.c_str(), why,
                  static_cast<unsigned long long>(address));
    violation(text + at.text + "\n  " + to_text(*site));
    set_sticky_error(code);
    error = code;
  }

  // Where the bytes of a global address are, or null after a failure.
  char* global(uint64_t address, size_t bytes, bool writes, const Instruction& at) {
    if (address % bytes != 0) return fail(cuda::kMisalignedAddress, at, address, "misaligned access"), nullptr;
    auto& allocation = recent[writes ? 1 : 0];
    if (!allocation || address < allocation->address || address + bytes > allocation->address + allocation->bytes) {
      const std::lock_guard lock(core().mutex);
      allocation = find_range(address, bytes);
    }
    if (!allocation || allocation->gpu == kHost || allocation->freed)
      return fail(cuda::kIllegalAddress, at, address, "access outside every device allocation"), nullptr;
    (writes ? written : read).add(address, bytes);
    return bytes_at(address);
  }
};

struct Thread {
  Launch& launch;
  std::vector<uint64_t> registers;
  std::array<unsigned, 12> special{};
  size_t next = 0;
  bool ended = false;
};

uint64_t mask(uint64_t value, int bits) { return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1); }
int64_t extend(uint64_t value, int bits) {
  return bits >= 64 ? static_cast<int64_t>(value) : static_cast<int64_t>(value << (64 - bits)) >> (64 - bits);
}

uint64_t read(const Thread& thread, const Operand& operand) {
  switch (operand.kind) {
    case Operand::reg: return operand.negated ? thread.registers[operand.index] ^ 1 : thread.registers[operand.index];
    case Operand::special: return thread.special[operand.index];
    case Operand::immediate:
    case Operand::parameter: return operand.value;
    case Operand::none:
    case Operand::vector:
    case Operand::memory:
    case Operand::label: return 0;
  }
  return 0;
}
uint64_t read(const Thread& thread, const Instruction& at, size_t i) { return read(thread, at.operands[i]); }
void write(Thread& thread, const Instruction& at, uint64_t value) { thread.registers[at.operands[0].index] = value; }

double as_float(uint64_t value, int bits) {
  if (bits == 16) return from_half(static_cast<uint16_t>(value));
  if (bits == 32) return std::bit_cast<float>(static_cast<uint32_t>(value));
  return std::bit_cast<double>(value);
}
// A float32 operation in double, rounded once, is exact for one add, sub, mul or div.
uint64_t float_bits(double value, int bits) {
  if (bits == 16) return to_half(static_cast<float>(value));
  if (bits == 32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<uint64_t>(value);
}

bool has(const Instruction& at, const char* word) {
  return std::find(at.opcode.begin(), at.opcode.end(), word) != at.opcode.end();
}

template <typename OnFloats, typename OnBits>
void binary(Thread& thread, const Instruction& at, OnFloats on_floats, OnBits on_bits) {
  const uint64_t a = read(thread, at, 1), b = read(thread, at, 2);
  const int bits = at.type.bits;
  if (at.type.kind == 'f') {
    write(thread, at, float_bits(on_floats(as_float(a, bits), as_float(b, bits)), bits));
  } else {
    write(thread, at, mask(on_bits(mask(a, bits), mask(b, bits)), bits));
  }
}

void op_mov(Thread& thread, const Instruction& at) {
  const Operand &to = at.operands[0], &from = at.operands[1];
  if (to.kind == Operand::vector) {  // mov.b32 {%rs1, %rs2}, %r1
    const int bits = at.type.bits / static_cast<int>(to.parts.size());
    for (size_t i = 0; i < to.parts.size(); ++i)
      thread.registers[to.parts[i].index] = mask(read(thread, from) >> (bits * static_cast<int>(i)), bits);
  } else if (from.kind == Operand::vector) {
    const int bits = at.type.bits / static_cast<int>(from.parts.size());
    uint64_t value = 0;
    for (size_t i = 0; i < from.parts.size(); ++i)
      value |= mask(read(thread, from.parts[i]), bits) << (bits * static_cast<int>(i));
    write(thread, at, value);
  } else {
    write(thread, at, mask(read(thread, from), at.type.kind == 'p' ? 1 : at.type.bits));
  }
}

std::pair<std::vector<const Operand*>, size_t> elements(const Instruction& at, const Operand& data) {
  std::vector<const Operand*> list;
  if (data.kind == Operand::vector) {
    for (const Operand& part : data.parts) list.push_back(&part);
  } else {
    list.push_back(&data);
  }
  return {list, static_cast<size_t>(at.type.bits / 8)};
}

void op_ld(Thread& thread, const Instruction& at) {
  const Operand& from = at.operands[1];
  const auto [targets, size] = elements(at, at.operands[0]);
  uint64_t address = from.value + (from.index >= 0 ? thread.registers[from.index] : 0);
  const char* bytes = nullptr;
  if (at.opcode.at(1) == "param") {
    if (address + size * targets.size() > thread.launch.parameters.size())
      return thread.launch.fail(cuda::kIllegalAddress, at, address, "read outside the parameters");
    bytes = thread.launch.parameters.data() + address;
  } else {
    bytes = thread.launch.global(address, size * targets.size(), false, at);
  }
  if (bytes == nullptr) return;
  for (const Operand* target : targets) {
    uint64_t value = 0;
    std::memcpy(&value, bytes, size);
    bytes += size;
    thread.registers[target->index] = at.type.kind == 's' ? static_cast<uint64_t>(extend(value, at.type.bits)) : value;
  }
}

void op_st(Thread& thread, const Instruction& at) {
  const Operand& to = at.operands[0];
  const auto [sources, size] = elements(at, at.operands[1]);
  const uint64_t address = to.value + thread.registers[to.index];
  char* bytes = thread.launch.global(address, size * sources.size(), true, at);
  if (bytes == nullptr) return;
  for (const Operand* source : sources) {
    const uint64_t value = read(thread, *source);
    std::memcpy(bytes, &value, size);
    bytes += size;
  }
}

void op_add(Thread& thread, const Instruction& at) {
  binary(
      thread, at, [](double a, double b) { return a + b; }, [](uint64_t a, uint64_t b) { return a + b; });
}
void op_sub(Thread& thread, const Instruction& at) {
  binary(
      thread, at, [](double a, double b) { return a - b; }, [](uint64_t a, uint64_t b) { return a - b; });
}

__extension__ using Wide = __int128;
__extension__ using UnsignedWide = unsigned __int128;

uint64_t product(const Instruction& at, uint64_t a, uint64_t b) {
  const int bits = at.type.bits;
  const bool is_signed = at.type.kind == 's';
  const Wide exact = is_signed ? static_cast<Wide>(extend(a, bits)) * extend(b, bits)
                               : static_cast<Wide>(static_cast<UnsignedWide>(mask(a, bits)) * mask(b, bits));
  if (has(at, "hi")) return mask(static_cast<uint64_t>(exact >> bits), bits);
  return mask(static_cast<uint64_t>(exact), has(at, "wide") ? 2 * bits : bits);
}
void op_mul(Thread& thread, const Instruction& at) {
  if (at.type.kind != 'f') return write(thread, at, product(at, read(thread, at, 1), read(thread, at, 2)));
  binary(
      thread, at, [](double a, double b) { return a * b; }, [](uint64_t a, uint64_t) { return a; });
}
void op_mad(Thread& thread, const Instruction& at) {
  const int bits = has(at, "wide") ? 2 * at.type.bits : at.type.bits;
  write(thread, at, mask(product(at, read(thread, at, 1), read(thread, at, 2)) + read(thread, at, 3), bits));
}
void op_fma(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const double a = as_float(read(thread, at, 1), bits), b = as_float(read(thread, at, 2), bits),
               c = as_float(read(thread, at, 3), bits);
  if (bits == 32) {
    write(thread, at, float_bits(std::fmaf(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c)), 32));
  } else {
    write(thread, at, float_bits(std::fma(a, b, c), bits));
  }
}
void op_div(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const bool is_signed = at.type.kind == 's';
  binary(
      thread, at, [](double a, double b) { return a / b; },
      [&](uint64_t a, uint64_t b) {
        if (b == 0) return ~uint64_t{0};
        return is_signed ? static_cast<uint64_t>(extend(a, bits) / extend(b, bits)) : a / b;
      });
}
void op_rem(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const bool is_signed = at.type.kind == 's';
  binary(
      thread, at, [](double a, double) { return a; },
      [&](uint64_t a, uint64_t b) {
        if (b == 0) return a;
        return is_signed ? static_cast<uint64_t>(extend(a, bits) % extend(b, bits)) : a % b;
      });
}
template <bool kLess>
void op_min_max(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const bool is_signed = at.type.kind == 's';
  binary(
      thread, at, [](double a, double b) { return kLess ? std::fmin(a, b) : std::fmax(a, b); },
      [&](uint64_t a, uint64_t b) {
        const bool less = is_signed ? extend(a, bits) < extend(b, bits) : a < b;
        return less == kLess ? a : b;
      });
}
void op_and(Thread& thread, const Instruction& at) { write(thread, at, read(thread, at, 1) & read(thread, at, 2)); }
void op_or(Thread& thread, const Instruction& at) { write(thread, at, read(thread, at, 1) | read(thread, at, 2)); }
void op_xor(Thread& thread, const Instruction& at) { write(thread, at, read(thread, at, 1) ^ read(thread, at, 2)); }
void op_not(Thread& thread, const Instruction& at) { write(thread, at, mask(~read(thread, at, 1), at.type.bits)); }
void op_neg(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const uint64_t a = read(thread, at, 1);
  write(thread, at, at.type.kind == 'f' ? a ^ (uint64_t{1} << (bits - 1)) : mask(0 - a, bits));
}
void op_abs(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const uint64_t a = read(thread, at, 1);
  const bool negative = extend(mask(a, bits), bits) < 0;
  write(thread, at, at.type.kind == 'f' ? mask(a, bits - 1) : mask(negative ? 0 - a : a, bits));
}
void op_shl(Thread& thread, const Instruction& at) {
  const uint64_t by = mask(read(thread, at, 2), 32);
  write(thread, at, by >= static_cast<uint64_t>(at.type.bits) ? 0 : mask(read(thread, at, 1) << by, at.type.bits));
}
void op_shr(Thread& thread, const Instruction& at) {
  const int bits = at.type.bits;
  const uint64_t by = std::min<uint64_t>(mask(read(thread, at, 2), 32), static_cast<uint64_t>(bits));
  const uint64_t a = mask(read(thread, at, 1), bits);
  if (at.type.kind == 's') {
    write(thread, at, mask(static_cast<uint64_t>(extend(a, bits) >> std::min<uint64_t>(by, 63)), bits));
  } else {
    write(thread, at, by >= 64 ? 0 : a >> by);
  }
}

template <typename T>
bool compared(const std::string& how, T a, T b) {
  if (how == "eq") return a == b;
  if (how == "ne") return a != b;
  if (how == "lt" || how == "lo") return a < b;
  if (how == "le" || how == "ls") return a <= b;
  if (how == "gt" || how == "hi") return a > b;
  return a >= b;
}
void op_setp(Thread& thread, const Instruction& at) {
  const uint64_t a = read(thread, at, 1), b = read(thread, at, 2);
  const int bits = at.type.bits;
  std::string how = at.opcode.at(1);
  bool result = false;
  if (at.type.kind == 'f') {
    const double x = as_float(a, bits), y = as_float(b, bits);
    const bool unordered = std::isnan(x) || std::isnan(y);
    if (how == "nan" || how == "num") {
      result = unordered == (how == "nan");
    } else if (how.size() == 3) {  // ltu and the like: true if unordered
      how.pop_back();
      result = unordered || compared(how, x, y);
    } else {
      result = !unordered && compared(how, x, y);
    }
  } else if (at.type.kind == 's') {
    result = compared(how, extend(a, bits), extend(b, bits));
  } else {
    result = compared(how, mask(a, bits), mask(b, bits));
  }
  write(thread, at, result ? 1 : 0);
}
void op_selp(Thread& thread, const Instruction& at) {
  write(thread, at, read(thread, at, read(thread, at, 3) != 0 ? 1 : 2));
}

uint64_t float_to_integer(double value, Type to) {
  if (std::isnan(value)) return to.bits == 64 ? uint64_t{1} << 63 : 0;
  if (to.kind == 's') {
    const double limit = std::ldexp(1.0, to.bits - 1);
    if (value >= limit) return mask((uint64_t{1} << (to.bits - 1)) - 1, to.bits);
    if (value < -limit) return mask(uint64_t{1} << (to.bits - 1), to.bits);
    return mask(static_cast<uint64_t>(static_cast<int64_t>(value)), to.bits);
  }
  if (value <= 0) return 0;
  return value >= std::ldexp(1.0, to.bits) ? mask(~uint64_t{0}, to.bits) : static_cast<uint64_t>(value);
}
double rounded(double value, const Instruction& at) {
  if (has(at, "rni")) return std::nearbyint(value);
  if (has(at, "rmi")) return std::floor(value);
  if (has(at, "rpi")) return std::ceil(value);
  return std::trunc(value);
}
Type parsed(const std::string& word) { return {word[0], std::atoi(word.c_str() + 1)}; }

void op_cvt(Thread& thread, const Instruction& at) {
  const Type to = parsed(at.opcode[at.opcode.size() - 2]), from = at.type;
  const uint64_t a = mask(read(thread, at, 1), from.bits);
  uint64_t result = 0;
  if (to.kind == 'f' && from.kind == 'f') {
    result = float_bits(as_float(a, from.bits), to.bits);
  } else if (to.kind == 'f' && to.bits == 32) {  // one rounding from 64-bit integers, too
    const float value = from.kind == 's' ? static_cast<float>(extend(a, from.bits)) : static_cast<float>(a);
    result = std::bit_cast<uint32_t>(value);
  } else if (to.kind == 'f') {
    result = float_bits(from.kind == 's' ? static_cast<double>(extend(a, from.bits)) : static_cast<double>(a), to.bits);
  } else if (from.kind == 'f') {
    result = float_to_integer(rounded(as_float(a, from.bits), at), to);
  } else {
    result = mask(from.kind == 's' ? static_cast<uint64_t>(extend(a, from.bits)) : a, to.bits);
  }
  // A destination register may be wider than the type: signed values are extended.
  write(thread, at, to.kind == 's' ? static_cast<uint64_t>(extend(result, to.bits)) : result);
}
void op_cvta(Thread& thread, const Instruction& at) { write(thread, at, read(thread, at, 1)); }
void op_bra(Thread& thread, const Instruction& at) { thread.next = thread.launch.kernel.labels[at.operands[0].index]; }
void op_ret(Thread& thread, const Instruction&) { thread.ended = true; }

struct Executed {
  const char* name;
  void (*run)(Thread&, const Instruction&);
};
constexpr Executed kInstructions[] = {
    {"mov", op_mov},
    {"ld", op_ld},
    {"st", op_st},
    {"add", op_add},
    {"sub", op_sub},
    {"mul", op_mul},
    {"mad", op_mad},
    {"fma", op_fma},
    {"div", op_div},
    {"rem", op_rem},
    {"and", op_and},
    {"or", op_or},
    {"xor", op_xor},
    {"not", op_not},
    {"neg", op_neg},
    {"abs", op_abs},
    {"shl", op_shl},
    {"shr", op_shr},
    {"setp", op_setp},
    {"selp", op_selp},
    {"cvt", op_cvt},
    {"cvta", op_cvta},
    {"bra", op_bra},
    {"ret", op_ret},
    {"exit", op_ret},
    {"min", op_min_max<true>},
    {"max", op_min_max<false>},
};

void run_thread(Thread& thread) {
  const auto& code = thread.launch.kernel.code;
  while (!thread.ended && thread.next < code.size() && thread.launch.error == 0) {
    const Instruction& at = code[thread.next++];
    if (at.guard >= 0 && (thread.registers[at.guard] != 0) == at.guard_negated) continue;
    kInstructions[at.run].run(thread, at);
  }
}

template <typename Each>
void for_all(const std::array<unsigned, 3>& shape, Each each) {
  for (unsigned z = 0; z < shape[2]; ++z)
    for (unsigned y = 0; y < shape[1]; ++y)
      for (unsigned x = 0; x < shape[0]; ++x) each(x, y, z);
}

}  // namespace

int find_instruction(const std::vector<std::string>& opcode) {
  for (size_t i = 0; i < std::size(kInstructions); ++i) {
    if (opcode[0] != kInstructions[i].name) continue;
    const bool memory = opcode[0] == "ld" || opcode[0] == "st";
    if (memory && opcode.at(1) != "global" && (opcode.at(1) != "param" || opcode[0] == "st")) return -1;
    if (opcode[0] == "setp" && opcode.size() != 3) return -1;  // with .and and the like
    if (std::find(opcode.begin(), opcode.end(), "sat") != opcode.end()) return -1;
    return static_cast<int>(i);
  }
  return -1;
}

int run(const Kernel& kernel, const Shape& shape, const std::vector<char>& parameters, const SitePointer& site) {
  Launch launch{.kernel = kernel, .parameters = parameters, .site = site, .read = {}, .written = {}, .recent = {}};
  Thread thread{.launch = launch, .registers = {}};
  for_all(shape.grid, [&](unsigned bx, unsigned by, unsigned bz) {
    for_all(shape.block, [&](unsigned x, unsigned y, unsigned z) {
      if (launch.error != 0) return;
      thread.registers.assign(static_cast<size_t>(kernel.registers), 0xdeadbeefdeadbeef);
      thread.special = {x,
                        y,
                        z,
                        bx,
                        by,
                        bz,
                        shape.block[0],
                        shape.block[1],
                        shape.block[2],
                        shape.grid[0],
                        shape.grid[1],
                        shape.grid[2]};
      thread.next = 0;
      thread.ended = false;
      run_thread(thread);
    });
  });
  const std::lock_guard lock(core().mutex);
  for (const auto& [begin, end] : launch.read.merged()) note_access(site, begin, end - begin, false);
  for (const auto& [begin, end] : launch.written.merged()) note_access(site, begin, end - begin, true);
  return launch.error;
}

}  // namespace standin::ptx
