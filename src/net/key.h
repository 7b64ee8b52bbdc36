// The job's key and computations with it. The launcher makes one key per job; every process of the job has it in
// _HOROVOD_SECRET_KEY, and no other process does. Backed by OpenSSL. Thread rule: plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/wire.h"

namespace hvd {

using Nonce = std::array<std::byte, 32>;  // used once
using Proof = std::array<std::byte, 32>;  // HMAC-SHA256

class Key {
 public:
  static Result<Key> random();                        // 32 bytes
  static Result<Key> from_hex(std::string_view hex);  // at least 16 bytes
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key();  // wipes the bytes

  std::string hex() const;
  Proof prove(ByteView message) const;
  bool confirms(ByteView proof, ByteView message) const;  // constant time

 private:
  explicit Key(Bytes bytes) : bytes_(std::move(bytes)) {}
  Bytes bytes_;
};

Result<Nonce> random_nonce();

std::string to_hex(ByteView bytes);
Result<Bytes> from_hex(std::string_view hex);  // the error does not repeat the text, which may be secret

}  // namespace hvd
