#include "net/handshake.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cassert>

namespace hvd {
namespace {

constexpr std::array<uint8_t, 4> kMagic{'h', 'v', 'd', 0xa7};
constexpr size_t kHeaderBytes = 8;
constexpr size_t kLongestBody = 512;  // of any version; a longer one is not this protocol
constexpr size_t kIdentityBytes = 1 + 8 + 3 * 4;
constexpr size_t kProofBytes = sizeof(Proof), kNonceBytes = sizeof(Nonce);
// By kind, from hello on.
constexpr std::array<size_t, 5> kBodyBytes{kNonceBytes + kIdentityBytes, kNonceBytes + kProofBytes, kProofBytes,
                                           1 + 8 + kProofBytes, 1};

constexpr std::string_view kCalled = "called", kCaller = "caller", kVerdict = "verdict";
constexpr std::array<std::string_view, 6> kPurposes{"store", "control", "data", "agent", "elastic", "function"};

void put32(Encoder& out, int32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.u8(static_cast<uint8_t>(static_cast<uint32_t>(value) >> shift));
}

int32_t get32(Decoder& in) {
  uint32_t value = 0;
  for (int shift = 0; shift < 32; shift += 8) value |= uint32_t{in.u8()} << shift;
  return static_cast<int32_t>(value);
}

void put(Encoder& out, const Identity& identity) {
  out.u8(static_cast<uint8_t>(identity.purpose));
  out.fixed64(static_cast<uint64_t>(identity.generation));
  for (int32_t number : {identity.from, identity.to, identity.stripe}) put32(out, number);
}

bool get(Decoder& in, Identity& identity) {
  identity.purpose = in.one_of(Purpose::function);
  identity.generation = Generation{in.fixed64()};
  for (int32_t* number : {&identity.from, &identity.to, &identity.stripe}) *number = get32(in);
  return in.ok() && identity.from >= -1 && identity.to >= -1 && identity.stripe >= 0;
}

std::string_view text_of(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Guesses the protocol of a peer that does not use this one, for the log.
std::string guess_of(ByteView first) {
  std::string_view text = text_of(first);
  for (std::string_view verb : {"GET", "PUT", "POST", "DELE", "HEAD", "OPTI", "CONN", "HTTP", "PRI "}) {
    if (text.starts_with(verb.substr(0, text.size()))) return "it speaks HTTP, not Horovod's protocol";
  }
  if (text[0] == 0x16) return "it speaks TLS, this side does not: HOROVOD_TLS must be the same everywhere";
  if (text[0] == '\x80') return "it sent pickled Python, not Horovod's protocol";
  return "it does not speak Horovod's protocol";
}

}  // namespace

Handshake Handshake::caller(const Key& key, const Identity& identity, const Nonce& nonce, uint8_t version) {
  Handshake handshake(key, nonce, version);
  handshake.is_caller_ = true;
  handshake.identity_ = identity;
  handshake.expected_ = Kind::challenge;
  Bytes body;
  Encoder out(body);
  out.bytes(nonce);
  put(out, identity);
  handshake.say(Kind::hello, body);
  return handshake;
}

Handshake Handshake::called(const Key& key, const Welcome& welcome, const Nonce& nonce, uint8_t version) {
  Handshake handshake(key, nonce, version);
  handshake.welcome_ = welcome;
  return handshake;
}

size_t Handshake::wanted() const {
  if (state_ != State::running) return 0;
  if (incoming_.size() < kHeaderBytes) return kHeaderBytes - incoming_.size();
  size_t length = static_cast<size_t>(incoming_[6]) | static_cast<size_t>(incoming_[7]) << 8;
  return kHeaderBytes + length - incoming_.size();
}

void Handshake::receive(ByteView bytes) {
  assert(bytes.size() <= wanted());
  bool in_header = incoming_.size() < kHeaderBytes;
  incoming_.insert(incoming_.end(), bytes.begin(), bytes.end());
  if (in_header) take_header();
  if (state_ == State::running && wanted() == 0) take_body();
}

// Checks a header as soon as its first bytes arrive, so unknown peers are rejected early.
void Handshake::take_header() {
  ByteView magic = std::as_bytes(std::span(kMagic)).first(std::min(incoming_.size(), kMagic.size()));
  if (!std::equal(magic.begin(), magic.end(), incoming_.begin())) {
    return fail(Refusal::none, guess_of(incoming_));
  }
  if (incoming_.size() < kHeaderBytes) return;
  size_t length = kHeaderBytes + wanted() - incoming_.size();
  if (length > kLongestBody) return fail(Refusal::none, fmt::format("it sent a message of {} bytes", length));
  // A message of another version is read completely before the answer is sent: closing with unread bytes would discard
  // the answer.
  if (static_cast<uint8_t>(incoming_[4]) != version_) return;
  auto kind = static_cast<uint8_t>(incoming_[5]);
  bool is_known = kind >= 1 && kind <= kBodyBytes.size() && length == kBodyBytes[kind - 1];
  if (!is_known || (Kind{kind} != expected_ && Kind{kind} != Kind::notice)) {
    fail(Refusal::none, fmt::format("it sent message {} of {} bytes out of turn", kind, length));
  }
}

void Handshake::take_body() {
  if (static_cast<uint8_t>(incoming_[4]) != version_) return answer_other_version();
  switch (Kind{static_cast<uint8_t>(incoming_[5])}) {
    case Kind::hello: take_hello(); break;
    case Kind::challenge: take_challenge(); break;
    case Kind::proof: take_proof(); break;
    case Kind::verdict: take_verdict(); break;
    case Kind::notice: take_notice(); break;
  }
  incoming_.clear();
}

void Handshake::answer_other_version() {
  if (!is_caller_) notify(Refusal::version);
  fail(Refusal::version, fmt::format("it speaks version {} of Horovod's protocol, this process version {}: the same "
                                     "Horovod must be installed everywhere",
                                     static_cast<uint8_t>(incoming_[4]), version_));
}

void Handshake::take_hello() {
  Decoder in(body().subspan(kNonceBytes));
  if (!get(in, identity_)) return fail(Refusal::none, "its hello is malformed");
  transcript_ = incoming_;
  Bytes answer(nonce_.begin(), nonce_.end());
  Proof proof = key_.prove(proven_bytes(kCalled, nonce_));
  answer.insert(answer.end(), proof.begin(), proof.end());
  say(Kind::challenge, answer);
  expected_ = Kind::proof;
}

void Handshake::take_challenge() {
  ByteView nonce = body().first(kNonceBytes), proof = body().subspan(kNonceBytes);
  if (!key_.confirms(proof, proven_bytes(kCalled, nonce))) {
    notify(Refusal::wrong_key);
    return fail(Refusal::wrong_key, "it has another key: it belongs to another job");
  }
  transcript_.insert(transcript_.end(), incoming_.begin(), incoming_.end());
  expected_ = Kind::verdict;
  state_ = State::proven;
}

void Handshake::prove() {
  assert(state_ == State::proven);
  state_ = State::running;
  say(Kind::proof, key_.prove(proven_bytes(kCaller, {})));
}

void Handshake::take_proof() {
  if (!key_.confirms(body(), proven_bytes(kCaller, {})))
    return fail(Refusal::wrong_key, "it could not prove the job's key");
  transcript_.insert(transcript_.end(), incoming_.begin(), incoming_.end());
  uint64_t detail = 0;
  Refusal refusal = judge(detail);
  Bytes answer;
  Encoder out(answer);
  out.u8(static_cast<uint8_t>(refusal));
  out.fixed64(detail);
  Proof proof = key_.prove(proven_bytes(kVerdict, answer));
  out.bytes(proof);
  say(Kind::verdict, answer);
  if (refusal == Refusal::none) {
    state_ = State::done;
  } else {
    fail(refusal, fmt::format("rank {} wants a {} connection to rank {} in generation {}, which is not this process",
                              identity_.from, kPurposes[static_cast<size_t>(identity_.purpose)], identity_.to,
                              static_cast<uint64_t>(identity_.generation)));
  }
}

Refusal Handshake::judge(uint64_t& detail) const {
  if (std::find(welcome_.purposes.begin(), welcome_.purposes.end(), identity_.purpose) == welcome_.purposes.end()) {
    return Refusal::wrong_purpose;
  }
  if (welcome_.generation && *welcome_.generation != identity_.generation) {
    detail = static_cast<uint64_t>(*welcome_.generation);
    return Refusal::wrong_generation;
  }
  if (welcome_.rank != identity_.to) {
    detail = static_cast<uint64_t>(static_cast<int64_t>(welcome_.rank));
    return Refusal::wrong_rank;
  }
  return Refusal::none;
}

void Handshake::take_verdict() {
  ByteView said = body().first(1 + 8), proof = body().subspan(1 + 8);
  if (!key_.confirms(proof, proven_bytes(kVerdict, said)))
    return fail(Refusal::none, "its verdict was modified in transit");
  Decoder in(said);
  Refusal refusal = in.one_of(Refusal::wrong_rank);
  uint64_t detail = in.fixed64();
  switch (refusal) {
    case Refusal::none: state_ = State::done; return;
    case Refusal::wrong_purpose:
      return fail(refusal,
                  fmt::format("it takes no {} connections", kPurposes[static_cast<size_t>(identity_.purpose)]));
    case Refusal::wrong_generation:
      return fail(refusal,
                  fmt::format("it is in generation {}, not {}", detail, static_cast<uint64_t>(identity_.generation)));
    case Refusal::wrong_rank:
      return fail(refusal, fmt::format("it is rank {}, not rank {}", static_cast<int64_t>(detail), identity_.to));
    case Refusal::version:
    case Refusal::wrong_key: break;
  }
  fail(Refusal::none, "its verdict is malformed");
}

void Handshake::take_notice() {
  auto refusal = static_cast<Refusal>(body().front());
  if (refusal == Refusal::wrong_key) return fail(refusal, "it has another key: it belongs to another job");
  fail(Refusal::none, "it ended the handshake");
}

void Handshake::say(Kind kind, ByteView body) {
  Bytes message;
  Encoder out(message);
  out.bytes(std::as_bytes(std::span(kMagic)));
  out.u8(version_);
  out.u8(static_cast<uint8_t>(kind));
  out.u8(static_cast<uint8_t>(body.size() & 0xff));
  out.u8(static_cast<uint8_t>(body.size() >> 8));
  out.bytes(body);
  outgoing_.insert(outgoing_.end(), message.begin(), message.end());
  if (kind != Kind::notice) transcript_.insert(transcript_.end(), message.begin(), message.end());
}

void Handshake::notify(Refusal refusal) {
  auto code = static_cast<std::byte>(refusal);
  say(Kind::notice, {&code, 1});
}

void Handshake::fail(Refusal refusal, std::string message) {
  state_ = State::failed;
  refusal_ = refusal;
  status_ = Status(refusal == Refusal::none ? Code::unknown : Code::precondition, std::move(message));
}

Bytes Handshake::proven_bytes(std::string_view label, ByteView more) const {
  Bytes message;
  Encoder out(message);
  out.text(label);
  out.bytes(transcript_);
  out.bytes(more);
  return message;
}

ByteView Handshake::body() const { return ByteView(incoming_).subspan(kHeaderBytes); }

}  // namespace hvd
