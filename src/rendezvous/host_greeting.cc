#include "rendezvous/host_greeting.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstring>

namespace hvd {
namespace {

constexpr std::string_view kPublicKey = "00000000000000000000000000000000";
constexpr size_t kNameBytes = 16;  // of the hash; the name has twice as many letters

// Includes the length of each part, so that different lists of parts never give the same bytes.
Bytes message_of(std::string_view label, std::string_view name, const Nonce& member, const Nonce& leader,
                 ByteView said) {
  Bytes bytes;
  Encoder out(bytes);
  out.text(label);
  out.text(name);
  out.bytes(member);
  out.bytes(leader);
  out.bytes(said);
  return bytes;
}

}  // namespace

Result<HostGreeting> HostGreeting::create(const World& world, const Config& config) {
  bool has_key = !config.secret_key.empty();
  auto key = Key::from_hex(has_key ? std::string_view(config.secret_key) : kPublicKey);
  if (!key.ok()) return key.status();
  std::string place =
      fmt::format("{}/{}/{}/{}", ::getuid(), world.job, world.host, static_cast<uint64_t>(world.generation));
  return HostGreeting(*key, has_key, std::move(place));
}

std::string HostGreeting::name(size_t index) const {
  Bytes bytes;
  Encoder out(bytes);
  out.text("the name of a host's meeting");
  out.text(place_);
  out.varint(index);
  Proof hash = key_.prove(bytes);
  return "horovod/" + to_hex(ByteView(hash).first(kNameBytes));
}

HostChallenge HostGreeting::challenge(std::string_view name, const HostOpening& opening, const Nonce& nonce) const {
  HostChallenge challenge;
  challenge.nonce = nonce;
  challenge.proof = key_.prove(message_of("leader", name, opening.nonce, nonce, {}));
  return challenge;
}

bool HostGreeting::is_leader(std::string_view name, const HostOpening& opening, const HostChallenge& challenge) const {
  return key_.confirms(challenge.proof, message_of("leader", name, opening.nonce, challenge.nonce, {}));
}

Bytes HostGreeting::sign(std::string_view name, const HostOpening& opening, const Nonce& nonce, ByteView said) const {
  Proof proof = key_.prove(message_of("member", name, opening.nonce, nonce, said));
  Bytes hello(proof.begin(), proof.end());
  hello.insert(hello.end(), said.begin(), said.end());
  return hello;
}

ByteView HostGreeting::confirmed(std::string_view name, const HostOpening& opening, const Nonce& nonce,
                                 ByteView hello) const {
  if (hello.size() <= sizeof(Proof)) return {};
  ByteView proof = hello.first(sizeof(Proof)), said = hello.subspan(sizeof(Proof));
  return key_.confirms(proof, message_of("member", name, opening.nonce, nonce, said)) ? said : ByteView();
}

sockaddr_un abstract_address(std::string_view name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t count = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), count);  // a leading zero byte: the abstract namespace
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return address;
}

}  // namespace hvd
