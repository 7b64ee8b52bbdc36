// A Stream under TLS 1.3. All processes of a job share one self-signed certificate that the launcher made for it; both
// sides present it and accept no other, so no authority, host name or clock is asked. Agents and launcher, which have
// the job's key before they talk, need no certificate: TLS starts from the key (a pre-shared key with fresh
// Diffie-Hellman). The HMAC handshake follows inside. Thread rule: a TlsContext may be shared by threads; a stream
// belongs to one at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"
#include "net/key.h"
#include "net/stream.h"

struct ssl_ctx_st;
struct x509_st;

namespace hvd {

// A fresh certificate (EC P-256) and its private key: PEM, written in hexadecimal to be one line of an environment
// variable (_HOROVOD_TLS_IDENTITY). As secret as the job's key.
Result<std::string> make_tls_identity();

class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> create(std::string_view identity);
  static Result<std::shared_ptr<const TlsContext>> from_key(const Key& key);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // TLS starts with the first read or write; until it is agreed on they move nothing.
  Result<std::unique_ptr<Stream>> make_stream(UniqueFd socket, bool is_caller) const;

 private:
  TlsContext(ssl_ctx_st* context, x509_st* certificate) : context_(context), certificate_(certificate) {}
  ssl_ctx_st* context_;
  x509_st* certificate_;           // null: from a key
  std::unique_ptr<Proof> shared_;  // what is derived from the key
};

}  // namespace hvd
