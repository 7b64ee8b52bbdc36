#include "net/tls.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "net/key.h"
#include "net/openssl.h"

namespace hvd {
namespace {

constexpr size_t kLargestWrite = 1 << 30;  // OpenSSL counts in int
constexpr long kDaysValid = 3650;          // not checked: the clocks of hosts may differ

using Certificate = std::unique_ptr<X509, Release<::X509_free>>;
using PrivateKey = std::unique_ptr<EVP_PKEY, Release<::EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Release<::SSL_CTX_free>>;
using Bio = std::unique_ptr<BIO, Release<::BIO_free>>;

std::string last_problem() {
  unsigned long error = ::ERR_peek_last_error();
  const char* reason = ::ERR_reason_error_string(error);
  std::string text = reason != nullptr ? reason : fmt::format("error {:x}", error);
  ::ERR_clear_error();
  return text;
}

Status tls_error(std::string_view what) { return {Code::unknown, fmt::format("{}: {}", what, last_problem())}; }

// ---- the socket below: like OpenSSL's own, but a lost peer is an error, not a signal ----

// The underlying socket for OpenSSL's reads and writes.
struct Below {
  UniqueFd socket;
  int error = 0;       // errno of the last failure
  bool ended = false;  // the peer has closed the connection
};

template <class Move>
int move_below(BIO* bio, Move move, int retry) {
  auto& below = *static_cast<Below*>(::BIO_get_data(bio));
  ::BIO_clear_retry_flags(bio);
  ssize_t count = move(below.socket.get());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) ::BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
  if (count < 0) below.error = errno;
  return static_cast<int>(count);
}

int read_below(BIO* bio, char* into, int size) {
  int count = move_below(
      bio, [&](int socket) { return ::recv(socket, into, static_cast<size_t>(size), MSG_DONTWAIT); }, BIO_FLAGS_READ);
  if (count == 0) static_cast<Below*>(::BIO_get_data(bio))->ended = true;
  return count;
}

int write_below(BIO* bio, const char* from, int size) {
  return move_below(
      bio, [&](int socket) { return ::send(socket, from, static_cast<size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL); },
      BIO_FLAGS_WRITE);
}

long control_below(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* method_below() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* made = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without signals");
    ::BIO_meth_set_read(made, read_below);
    ::BIO_meth_set_write(made, write_below);
    ::BIO_meth_set_ctrl(made, control_below);
    return made;
  }();
  return method;
}

// ---- the stream ----

class TlsStream : public Stream {
 public:
  TlsStream(SSL* ssl, BIO* bio, UniqueFd socket) : ssl_(ssl), below_{.socket = std::move(socket)} {
    ::BIO_set_data(bio, &below_);
    ::BIO_set_init(bio, 1);
    ::SSL_set_bio(ssl_.get(), bio, bio);
  }

  Result<size_t> read(std::span<std::byte> into) override {
    return move(into.size(), [&](size_t from, size_t count, size_t* moved) {
      int done = ::SSL_read_ex(ssl_.get(), into.data() + from, count, moved);
      drained_ = done <= 0;
      return done;
    });
  }

  Result<size_t> write(ByteView from) override {
    if (::SSL_in_init(ssl_.get()) != 0) drained_ = false;  // the handshake may read beyond its own end
    return move(from.size(), [&](size_t at, size_t count, size_t* moved) {
      return ::SSL_write_ex(ssl_.get(), from.data() + at, count, moved);
    });
  }

  int descriptor() const override { return below_.socket.get(); }
  bool has_buffered() const override { return !drained_ && ::SSL_has_pending(ssl_.get()) != 0; }

 private:
  template <class Step>
  Result<size_t> move(size_t size, const Step& step) {
    size_t total = 0;
    while (total < size && failure_.ok()) {
      ::ERR_clear_error();
      size_t moved = 0;
      int done = step(total, std::min(size - total, kLargestWrite), &moved);
      if (done > 0) {
        total += moved;
        continue;
      }
      int problem = ::SSL_get_error(ssl_.get(), done);
      if (problem != SSL_ERROR_WANT_READ && problem != SSL_ERROR_WANT_WRITE) failure_ = failure_of(problem);
      break;
    }
    if (total == 0 && !failure_.ok()) return failure_;
    return total;
  }

  Status failure_of(int problem) {
    if (problem == SSL_ERROR_ZERO_RETURN || below_.ended) return {Code::peer_lost, "connection closed by the peer"};
    if (problem == SSL_ERROR_SYSCALL && below_.error != 0) {
      return {Code::peer_lost, fmt::format("connection lost: {}", std::strerror(below_.error))};
    }
    return {Code::peer_lost, fmt::format("TLS: {}", last_problem())};
  }

  std::unique_ptr<SSL, Release<::SSL_free>> ssl_;
  Below below_;
  Status failure_;
  bool drained_ = false;  // the last read consumed all received data
};

// ---- the identity ----

struct Identity {
  Certificate certificate;
  PrivateKey key;
};

Result<Identity> read_identity(std::string_view hex) {
  prepare_openssl();
  auto pem = from_hex(hex);
  if (!pem.ok()) return Status(Code::invalid_argument, "the job's TLS identity is not a text of hexadecimal digits");
  Bio memory(::BIO_new_mem_buf(pem->data(), static_cast<int>(pem->size())));
  Identity identity;
  identity.certificate.reset(::PEM_read_bio_X509(memory.get(), nullptr, nullptr, nullptr));
  identity.key.reset(::PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, nullptr));
  if (!identity.certificate || !identity.key) {
    ::ERR_clear_error();
    return Status(Code::invalid_argument, "the job's TLS identity is not a certificate and its key");
  }
  return identity;
}

bool fill_certificate(X509* certificate, EVP_PKEY* key) {
  X509_NAME* name = ::X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>("horovod job");
  return ::X509_set_version(certificate, X509_VERSION_3) == 1 &&
         ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), 1) == 1 &&
         ::X509_gmtime_adj(::X509_getm_notBefore(certificate), 0) != nullptr &&
         ::X509_time_adj_ex(::X509_getm_notAfter(certificate), kDaysValid, 0, nullptr) != nullptr &&
         ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
         ::X509_set_issuer_name(certificate, name) == 1 && ::X509_set_pubkey(certificate, key) == 1 &&
         ::X509_sign(certificate, key, ::EVP_sha256()) > 0;
}

bool take_fingerprint(const X509* certificate, Fingerprint& fingerprint) {
  unsigned size = 0;
  auto* bytes = reinterpret_cast<unsigned char*>(fingerprint.data());
  return ::X509_digest(certificate, ::EVP_sha256(), bytes, &size) == 1 && size == fingerprint.size();
}

// Accepts exactly one certificate. TLS itself verifies that the peer has its private key.
int is_expected(X509_STORE_CTX* store, void* expected) {
  const X509* presented = ::X509_STORE_CTX_get0_cert(store);
  Fingerprint found;
  bool same =
      presented != nullptr && take_fingerprint(presented, found) && found == *static_cast<const Fingerprint*>(expected);
  ::X509_STORE_CTX_set_error(store, same ? X509_V_OK : X509_V_ERR_CERT_UNTRUSTED);
  return same ? 1 : 0;
}

bool configure_streams(SSL_CTX* context) {
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ::SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);  // every end of a stream is an error for its user
  ::SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(context, 0);
  ::SSL_CTX_set_read_ahead(context, 1);  // one recv for several records instead of two for each
  ::SSL_CTX_set_default_read_buffer_len(context, 128 << 10);
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return ::SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
         ::SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") == 1;
}

bool configure(SSL_CTX* context, const Identity& identity) {
  return configure_streams(context) && ::SSL_CTX_use_certificate(context, identity.certificate.get()) == 1 &&
         ::SSL_CTX_use_PrivateKey(context, identity.key.get()) == 1 && ::SSL_CTX_check_private_key(context) == 1;
}

// ---- from a key ----

constexpr std::string_view kSharedName = "horovod job";  // the key is the secret; the name reveals nothing
constexpr unsigned char kAes128GcmSha256[] = {0x13, 0x01};

SSL_SESSION* shared_session(SSL* ssl) {
  const auto* shared = static_cast<const Proof*>(SSL_CTX_get_app_data(::SSL_get_SSL_CTX(ssl)));
  std::unique_ptr<SSL_SESSION, Release<::SSL_SESSION_free>> session(::SSL_SESSION_new());
  const SSL_CIPHER* cipher = ::SSL_CIPHER_find(ssl, kAes128GcmSha256);
  const auto* bytes = reinterpret_cast<const unsigned char*>(shared->data());
  const auto* name = reinterpret_cast<const unsigned char*>(kSharedName.data());
  bool made = session != nullptr && cipher != nullptr &&
              ::SSL_SESSION_set1_master_key(session.get(), bytes, shared->size()) == 1 &&
              ::SSL_SESSION_set1_id_context(session.get(), name, kSharedName.size()) == 1 &&
              ::SSL_SESSION_set_cipher(session.get(), cipher) == 1 &&
              ::SSL_SESSION_set_protocol_version(session.get(), TLS1_3_VERSION) == 1;
  return made ? session.release() : nullptr;
}

int offer_shared(SSL* ssl, const EVP_MD*, const unsigned char** name, size_t* length, SSL_SESSION** session) {
  *session = shared_session(ssl);
  *name = reinterpret_cast<const unsigned char*>(kSharedName.data());
  *length = kSharedName.size();
  return *session != nullptr ? 1 : 0;
}

int find_shared(SSL* ssl, const unsigned char* name, size_t length, SSL_SESSION** session) {
  std::string_view wanted(reinterpret_cast<const char*>(name), length);
  *session = wanted == kSharedName ? shared_session(ssl) : nullptr;
  return 1;
}

}  // namespace

Result<std::string> make_tls_identity() {
  prepare_openssl();
  PrivateKey key(::EVP_EC_gen("P-256"));
  Certificate certificate(::X509_new());
  Bio memory(::BIO_new(::BIO_s_mem()));
  if (!key || !certificate || !memory || !fill_certificate(certificate.get(), key.get()) ||
      ::PEM_write_bio_X509(memory.get(), certificate.get()) != 1 ||
      ::PEM_write_bio_PrivateKey(memory.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return tls_error("cannot make the job's TLS certificate");
  }
  char* text = nullptr;
  long length = ::BIO_get_mem_data(memory.get(), &text);
  return to_hex(std::as_bytes(std::span(text, static_cast<size_t>(length))));
}

Result<Fingerprint> fingerprint_of(std::string_view hex) {
  auto identity = read_identity(hex);
  if (!identity.ok()) return identity.status();
  Fingerprint fingerprint;
  if (!take_fingerprint(identity->certificate.get(), fingerprint)) return tls_error("cannot hash a TLS certificate");
  return fingerprint;
}

Result<std::shared_ptr<const TlsContext>> TlsContext::create(std::string_view hex) {
  auto own = fingerprint_of(hex);
  if (!own.ok()) return own.status();
  return create(hex, *own);
}

Result<std::shared_ptr<const TlsContext>> TlsContext::create(std::string_view hex, const Fingerprint& peer) {
  auto identity = read_identity(hex);
  if (!identity.ok()) return identity.status();
  Context context(::SSL_CTX_new(::TLS_method()));
  if (!context || !configure(context.get(), *identity)) return tls_error("cannot set up TLS");
  std::shared_ptr<TlsContext> made(new TlsContext(context.release()));
  made->peer_ = peer;
  ::SSL_CTX_set_cert_verify_callback(made->context_, is_expected, &made->peer_);
  return std::shared_ptr<const TlsContext>(std::move(made));
}

// Without a certificate, the handshake fails if the peer does not have the key.
Result<std::shared_ptr<const TlsContext>> TlsContext::from_key(const Key& key) {
  prepare_openssl();
  Context context(::SSL_CTX_new(::TLS_method()));
  const auto* name = reinterpret_cast<const unsigned char*>(kSharedName.data());  // OpenSSL requires one for sessions
  if (!context || !configure_streams(context.get()) ||
      ::SSL_CTX_set_session_id_context(context.get(), name, kSharedName.size()) != 1) {
    return tls_error("cannot set up TLS");
  }
  ::SSL_CTX_set_psk_use_session_callback(context.get(), offer_shared);
  ::SSL_CTX_set_psk_find_session_callback(context.get(), find_shared);
  std::shared_ptr<TlsContext> made(new TlsContext(context.release()));
  made->shared_ = key.prove(std::as_bytes(std::span(kSharedName)));
  SSL_CTX_set_app_data(made->context_, &made->shared_);
  return std::shared_ptr<const TlsContext>(std::move(made));
}

TlsContext::~TlsContext() {
  ::SSL_CTX_free(context_);
  ::OPENSSL_cleanse(shared_.data(), shared_.size());
}

Result<std::unique_ptr<Stream>> TlsContext::make_stream(UniqueFd socket, bool is_caller) const {
  std::unique_ptr<SSL, Release<::SSL_free>> ssl(::SSL_new(context_));
  Bio bio(::BIO_new(method_below()));
  if (!ssl || !bio) return tls_error("cannot start TLS");
  if (is_caller) {
    ::SSL_set_connect_state(ssl.get());
  } else {
    ::SSL_set_accept_state(ssl.get());
  }
  return std::unique_ptr<Stream>(std::make_unique<TlsStream>(ssl.release(), bio.release(), std::move(socket)));
}

}  // namespace hvd
