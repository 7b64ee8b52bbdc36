#include "launcher/agents/key_agreement.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

#include <string_view>

#include "net/openssl.h"

namespace hvd {
namespace {

constexpr std::string_view kLabel = "horovod agent without stdin, version 1";
constexpr size_t kSecretBytes = 32;

using PublicPart = std::unique_ptr<EVP_PKEY, Release<::EVP_PKEY_free>>;
using Agreement = std::unique_ptr<EVP_PKEY_CTX, Release<::EVP_PKEY_CTX_free>>;
using Kdf = std::unique_ptr<EVP_KDF, Release<::EVP_KDF_free>>;
using KdfContext = std::unique_ptr<EVP_KDF_CTX, Release<::EVP_KDF_CTX_free>>;
using Secret = std::array<std::byte, kSecretBytes>;

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

// OpenSSL itself refuses a point that makes the secret all zeros, whatever our half is (RFC 7748, section 6.1).
bool multiply(EVP_PKEY* ours, const PublicKey& theirs, Secret& secret) {
  PublicPart peer(::EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, raw(theirs.data()), theirs.size()));
  Agreement agreement(::EVP_PKEY_CTX_new(ours, nullptr));
  size_t size = secret.size();
  return peer && agreement && ::EVP_PKEY_derive_init(agreement.get()) == 1 &&
         ::EVP_PKEY_derive_set_peer(agreement.get(), peer.get()) == 1 &&
         ::EVP_PKEY_derive(agreement.get(), raw(secret.data()), &size) == 1 && size == secret.size();
}

// RFC 5869, without salt. Both public keys are part of it: another pair of them is another key.
bool expand(Secret& secret, ByteView context, Secret& key) {
  Kdf kdf(::EVP_KDF_fetch(nullptr, OSSL_KDF_NAME_HKDF, nullptr));
  KdfContext running(kdf ? ::EVP_KDF_CTX_new(kdf.get()) : nullptr);
  char digest[] = "SHA256";
  Bytes info(context.begin(), context.end());
  OSSL_PARAM parameters[] = {::OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                             ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
                             ::OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()),
                             ::OSSL_PARAM_construct_end()};
  return running && ::EVP_KDF_derive(running.get(), raw(key.data()), key.size(), parameters) == 1;
}

}  // namespace

void KeyPair::Release::operator()(evp_pkey_st* pair) const { ::EVP_PKEY_free(pair); }

Result<KeyPair> KeyPair::make() {
  prepare_openssl();
  Pair pair(::EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"));
  PublicKey key;
  size_t size = key.size();
  if (pair && ::EVP_PKEY_get_raw_public_key(pair.get(), raw(key.data()), &size) == 1 && size == key.size())
    return KeyPair(std::move(pair), key);
  ::ERR_clear_error();
  return Status(Code::unknown, "cannot make a key pair");
}

Result<Key> KeyPair::agree(Side side, const PublicKey& theirs) const {
  Bytes context;
  for (char c : kLabel) context.push_back(static_cast<std::byte>(c));
  const PublicKey& launcher = side == Side::launcher ? public_key_ : theirs;
  const PublicKey& agent = side == Side::agent ? public_key_ : theirs;
  context.insert(context.end(), launcher.begin(), launcher.end());
  context.insert(context.end(), agent.begin(), agent.end());
  Secret secret{}, key{};
  bool made = multiply(pair_.get(), theirs, secret) && expand(secret, context, key);
  std::string hex = made ? to_hex(key) : "";
  Result<Key> result = made ? Key::from_hex(hex)
                            : Status(Code::invalid_argument, "that is no public key with which a key can be agreed on");
  for (auto* each : {&secret, &key}) ::OPENSSL_cleanse(each->data(), each->size());
  ::OPENSSL_cleanse(hex.data(), hex.size());
  ::ERR_clear_error();
  return result;
}

}  // namespace hvd
