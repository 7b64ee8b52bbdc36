// A Stream over TLS 1.3, in three variants. None uses a certificate authority, a host name or a clock:
//   the job's certificate   the launcher makes one, all processes of the job present it and accept no other
//   two certificates        each side has its own and knows the fingerprint of the other's (an agent without stdin)
//   a key                   both sides have it before they connect: a pre-shared key with fresh Diffie-Hellman
// The HMAC handshake follows over TLS. Thread rule: a TlsContext may be shared by threads; a stream belongs to one at a
// time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "net/key.h"
#include "net/stream.h"

struct ssl_ctx_st;

namespace hvd {

// A fresh certificate (EC P-256) and its private key: PEM, in hexadecimal so that it fits one line of an environment
// variable (_HOROVOD_TLS_IDENTITY). As secret as the job's key.
Result<std::string> make_tls_identity();

using Fingerprint = std::array<std::byte, 32>;  // SHA-256 of a certificate; not secret
Result<Fingerprint> fingerprint_of(std::string_view identity);

class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> create(std::string_view identity);  // the peer has the same identity
  static Result<std::shared_ptr<const TlsContext>> create(std::string_view identity, const Fingerprint& peer);
  static Result<std::shared_ptr<const TlsContext>> from_key(const Key& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // TLS starts with the first read or write; until it is established they return 0.
  Result<std::unique_ptr<Stream>> make_stream(UniqueFd socket, bool is_caller) const;

 private:
  explicit TlsContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* context_;
  Fingerprint peer_{};  // of the only accepted certificate; unused with a key
  Proof shared_{};      // derived from the key; unused with certificates
};

}  // namespace hvd
