// How two processes that can only tell each other public values come to share a key: X25519 with key pairs that are
// made for this one time, then HKDF-SHA256 over what they agree on and both public keys. Who has only seen the public
// keys learns nothing; who could replace one of them on its way sits in the middle. Backed by OpenSSL. Thread rule:
// plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/status.h"
#include "net/key.h"

struct evp_pkey_st;

namespace hvd {

using PublicKey = std::array<std::byte, 32>;

enum class Side { launcher, agent };

class KeyPair {
 public:
  static Result<KeyPair> make();

  const PublicKey& public_key() const { return public_key_; }
  // The key that the other side finds too, given ours. Not ok: theirs is none that a key pair has.
  Result<Key> agree(Side side, const PublicKey& theirs) const;

 private:
  struct Release {
    void operator()(evp_pkey_st* pair) const;
  };
  using Pair = std::unique_ptr<evp_pkey_st, Release>;
  KeyPair(Pair pair, const PublicKey& public_key) : pair_(std::move(pair)), public_key_(public_key) {}

  Pair pair_;
  PublicKey public_key_;
};

}  // namespace hvd
