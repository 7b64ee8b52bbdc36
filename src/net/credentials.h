// What a process of the job needs to connect to the others. Thread rule: plain value.
#pragma once

#include <memory>

#include "base/fd.h"
#include "base/status.h"
#include "model/config.h"
#include "net/key.h"
#include "net/stream.h"
#include "net/tls.h"

namespace hvd {

struct Credentials {
  Key key;
  std::shared_ptr<const TlsContext> tls;  // null: no TLS
};

Result<Credentials> credentials_from_config(const Config& config);

// For connections that are always encrypted, whatever HOROVOD_TLS says: they carry commands or pickles, which must not
// be modified in transit.
Result<Credentials> encrypted_credentials(const Key& key);

// The stream over a connected socket, before the handshake.
Result<std::unique_ptr<Stream>> make_stream(UniqueFd socket, const Credentials& credentials, bool is_caller);

}  // namespace hvd
