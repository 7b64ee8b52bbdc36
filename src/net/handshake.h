// How a connection starts: both sides prove that they have the job's key, and the accepting side learns the peer's
// identity and purpose. A pure state machine: bytes in, bytes out; acceptor.h and connector.h transfer the bytes.
//
// Protocol, version 1. A message is a header of 8 bytes and a body whose length follows from its kind:
//   header     "hvd" 0xa7, version (1 byte), kind (1 byte), length of the body (2 bytes, little-endian)
//   hello      caller: nonce (32), identity: purpose (1), generation (8), from (4), to (4), stripe (4)
//   challenge  called: nonce (32), proof (32) over "called", hello, its nonce
//   proof      caller: proof (32) over "caller", hello, challenge
//   verdict    called: refusal (1; 0 accepts), detail (8), proof (32) over "verdict", hello, challenge, proof, both
//   notice     either: refusal (1), without proof: a final message to a peer that cannot verify or give a proof
// A proof is HMAC-SHA256 under the job's key over a label and every byte exchanged before it. After the verdict the
// stream belongs to its user.
// Security: a recorded conversation cannot be replayed, because each side puts a fresh nonce into every proof; a proof
// cannot be reflected, because each kind has its own label; neither the caller's identity nor the verdict can be
// modified in transit. The called side sends nothing until it has received a complete hello, and allocates nothing that
// depends on the caller. The caller sends its proof only on the connection that it will use (prove()). The handshake
// does not provide secrecy, nor protection of the bytes that follow; TLS does (tls.h, docs/security.md). Thread rule:
// plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/wire.h"
#include "model/world.h"
#include "net/key.h"

namespace hvd {

inline constexpr uint8_t kProtocolVersion = 1;

enum class Purpose : uint8_t { store, control, data, agent, elastic, function };  // function: of horovod.run

// The caller and its purpose. Ranks are those of the generation; -1: not a rank (the launcher, a store). On an elastic
// connection `from` is the number that the launcher gave the worker.
struct Identity {
  Purpose purpose = Purpose::store;
  Generation generation{0};
  int32_t from = -1, to = -1;
  int32_t stripe = 0;

  bool operator==(const Identity&) const = default;
};

// Which callers the called side accepts, after they have proven the key.
struct Welcome {
  std::vector<Purpose> purposes;
  std::optional<Generation> generation;  // nullopt: any
  int32_t rank = -1;                     // the required value of `to`
};

enum class Refusal : uint8_t { none, version, wrong_key, wrong_purpose, wrong_generation, wrong_rank };

class Handshake {
 public:
  enum class State {
    running,
    proven,  // caller: the called side has proven the key; prove() continues
    done,    // accepted, once outgoing() is sent
    failed,  // status() has the reason; outgoing() should still be sent
  };

  static Handshake caller(const Key& key, const Identity& identity, const Nonce& nonce,
                          uint8_t version = kProtocolVersion);
  static Handshake called(const Key& key, const Welcome& welcome, const Nonce& nonce,
                          uint8_t version = kProtocolVersion);

  State state() const { return state_; }
  size_t wanted() const;         // the most bytes to read next
  void receive(ByteView bytes);  // at most wanted()
  ByteView outgoing() const { return ByteView(outgoing_).subspan(sent_); }
  void sent(size_t count) { sent_ += count; }
  void prove();  // caller, when proven

  const Identity& identity() const { return identity_; }         // called side: the caller's claim; verified when done
  bool is_refused() const { return refusal_ != Refusal::none; }  // failed with a definite answer: a retry is useless
  const Status& status() const { return status_; }

 private:
  enum class Kind : uint8_t { hello = 1, challenge, proof, verdict, notice };
  Handshake(const Key& key, const Nonce& nonce, uint8_t version) : key_(key), nonce_(nonce), version_(version) {}

  void take_header();
  void take_body();
  void take_hello();
  void take_challenge();
  void take_proof();
  void take_verdict();
  void take_notice();
  void answer_other_version();
  void say(Kind kind, ByteView body);  // appends to outgoing_ and, except for notices, to the transcript
  void notify(Refusal refusal);
  void fail(Refusal refusal, std::string message);
  Refusal judge(uint64_t& detail) const;
  Bytes proven_bytes(std::string_view label, ByteView more) const;  // label, all messages so far, more
  ByteView body() const;

  Key key_;
  Nonce nonce_;
  uint8_t version_;
  bool is_caller_ = false;
  State state_ = State::running;
  Identity identity_;
  Welcome welcome_;
  Bytes incoming_;    // the message being read
  Bytes transcript_;  // every message so far
  Bytes outgoing_;
  size_t sent_ = 0;
  Kind expected_ = Kind::hello;
  Refusal refusal_ = Refusal::none;
  Status status_;
};

}  // namespace hvd
