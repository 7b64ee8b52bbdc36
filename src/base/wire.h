// The wire codec: little-endian varints, fixed 64-bit words and length-prefixed strings.
// Encoder appends to a borrowed buffer. Decoder reads bytes that another process wrote, so every read is checked: after
// the first bad read, ok() is false and all further reads return zero values. Sizes are checked against the rest of the
// buffer before anything is allocated.
// Thread rule: plain values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hvd {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

class Encoder {
 public:
  explicit Encoder(Bytes& out) : out_(out) {}

  void u8(uint8_t value) { out_.push_back(static_cast<std::byte>(value)); }
  void varint(uint64_t value) {
    while (value >= 0x80) {
      u8(static_cast<uint8_t>(value | 0x80));
      value >>= 7;
    }
    u8(static_cast<uint8_t>(value));
  }
  void signed_varint(int64_t value) {  // zigzag: small negatives stay small
    varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }
  void f64(double value) { fixed64(std::bit_cast<uint64_t>(value)); }
  void fixed64(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) u8(static_cast<uint8_t>(value >> shift));
  }
  void text(std::string_view value) {
    varint(value.size());
    bytes(std::as_bytes(std::span(value)));
  }
  void bytes(ByteView value) { out_.insert(out_.end(), value.begin(), value.end()); }

 private:
  Bytes& out_;
};

class Decoder {
 public:
  explicit Decoder(ByteView in) : in_(in) {}

  bool ok() const { return ok_; }
  bool at_end() const { return in_.empty(); }
  size_t left() const { return in_.size(); }

  uint8_t u8() {
    if (in_.empty()) return fail();
    uint8_t value = static_cast<uint8_t>(in_.front());
    in_ = in_.subspan(1);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      uint8_t byte = u8();
      if (shift == 63 && byte > 1) return fail();
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return ok_ ? value : 0;
    }
    return fail();
  }
  int64_t signed_varint() {
    uint64_t value = varint();
    return static_cast<int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  uint64_t fixed64() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 8) value |= static_cast<uint64_t>(u8()) << shift;
    return ok_ ? value : 0;
  }
  double f64() { return std::bit_cast<double>(fixed64()); }
  std::string_view text() {
    ByteView view = bytes(varint());
    return {reinterpret_cast<const char*>(view.data()), view.size()};
  }
  ByteView bytes(uint64_t count) {
    if (count > in_.size()) {
      fail();
      return {};
    }
    ByteView view = in_.first(count);
    in_ = in_.subspan(count);
    return view;
  }
  // The length of a list whose elements take at least `smallest` bytes each. A length that cannot fit is a bad read.
  size_t count(size_t smallest = 1) {
    uint64_t value = varint();
    if (value > in_.size() / smallest) return fail();
    return value;
  }
  // An enum with values 0..last.
  template <class Enum>
  Enum one_of(Enum last) {
    uint8_t value = u8();
    if (value > static_cast<uint8_t>(last)) value = fail();
    return static_cast<Enum>(value);
  }
  uint8_t fail() {
    ok_ = false;
    in_ = {};
    return 0;
  }

 private:
  ByteView in_;
  bool ok_ = true;
};

}  // namespace hvd
