#include "net/key.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <optional>
#include <span>

#include "net/openssl.h"

namespace hvd {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kLeastKeyBytes = 16;

Status fill_random(std::span<std::byte> out) {  // up to 256 bytes are complete even if a signal arrives
  if (::getrandom(out.data(), out.size(), 0) == static_cast<ssize_t>(out.size())) return {};
  return system_error("cannot get random bytes from", "getrandom");
}

std::optional<Proof> hmac(ByteView key, ByteView message) {
  prepare_openssl();
  Proof proof;
  unsigned length = 0;
  bool made = ::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()),
                     reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                     reinterpret_cast<unsigned char*>(proof.data()), &length) != nullptr;
  if (!made || length != proof.size()) return std::nullopt;
  return proof;
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<Key> Key::random() {
  Bytes bytes(kKeyBytes);
  if (Status status = fill_random(bytes); !status.ok()) return status;
  return Key(std::move(bytes));
}

Result<Key> Key::from_hex(std::string_view hex) {
  auto bytes = hvd::from_hex(hex);
  if (!bytes.ok()) return Status(Code::invalid_argument, "the job's key is not a text of hexadecimal digits");
  if (bytes->size() < kLeastKeyBytes) {
    return Status(Code::invalid_argument, fmt::format("the job's key has {} hexadecimal digits; it needs at least {}",
                                                      hex.size(), 2 * kLeastKeyBytes));
  }
  return Key(std::move(*bytes));
}

Key::~Key() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

std::string Key::hex() const { return to_hex(bytes_); }

// If a proof cannot be computed (no memory) it is all zeros, which no peer accepts.
Proof Key::prove(ByteView message) const { return hmac(bytes_, message).value_or(Proof{}); }

bool Key::confirms(ByteView proof, ByteView message) const {
  auto expected = hmac(bytes_, message);
  return expected && proof.size() == expected->size() &&
         ::CRYPTO_memcmp(proof.data(), expected->data(), expected->size()) == 0;
}

Result<Nonce> random_nonce() {
  Nonce nonce;
  if (Status status = fill_random(nonce); !status.ok()) return status;
  return nonce;
}

std::string to_hex(ByteView bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (std::byte byte : bytes) {
    text += "0123456789abcdef"[static_cast<uint8_t>(byte) >> 4];
    text += "0123456789abcdef"[static_cast<uint8_t>(byte) & 15];
  }
  return text;
}

Result<Bytes> from_hex(std::string_view hex) {
  Bytes bytes;
  bytes.reserve(hex.size() / 2);
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    int high = digit_of(hex[i]), low = digit_of(hex[i + 1]);
    if (high < 0 || low < 0) break;
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  if (bytes.size() * 2 == hex.size()) return bytes;
  return Status(Code::invalid_argument, "not an even number of hexadecimal digits");
}

}  // namespace hvd
