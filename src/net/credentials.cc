#include "net/credentials.h"

namespace hvd {

Result<Credentials> credentials_from_config(const Config& config) {
  if (config.secret_key.empty()) {
    return Status(
        Code::invalid_argument,
        "_HOROVOD_SECRET_KEY is not set, so the processes of the job cannot authenticate each other; start the job "
        "with horovodrun, or give all of them the same 64 hexadecimal digits");
  }
  auto key = Key::from_hex(config.secret_key);
  if (!key.ok()) return key.status();
  Credentials credentials{.key = *key};
  if (!config.tls) return credentials;
  if (config.tls_identity.empty()) {
    return Status(
        Code::invalid_argument,
        "HOROVOD_TLS is set, but there is no certificate in _HOROVOD_TLS_IDENTITY; start the job with horovodrun");
  }
  auto tls = TlsContext::create(config.tls_identity);
  if (!tls.ok()) return tls.status();
  credentials.tls = std::move(*tls);
  return credentials;
}

Result<Credentials> encrypted_credentials(const Key& key) {
  auto tls = TlsContext::from_key(key);
  if (!tls.ok()) return tls.status();
  return Credentials{.key = key, .tls = std::move(*tls)};
}

Result<std::unique_ptr<Stream>> make_stream(UniqueFd socket, const Credentials& credentials, bool is_caller) {
  if (credentials.tls != nullptr) return credentials.tls->make_stream(std::move(socket), is_caller);
  return make_plain_stream(std::move(socket));
}

}  // namespace hvd
