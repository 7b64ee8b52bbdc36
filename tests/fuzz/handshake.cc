// Feeds arbitrary bytes to both sides of a handshake: no peer without the key is ever accepted.
#include "net/handshake.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace hvd {
namespace {

using State = Handshake::State;

// One message from one to the other.
void pass(Handshake& from, Handshake& to) {
  while (!from.outgoing().empty() && to.wanted() > 0) {
    ByteView part = from.outgoing().first(std::min(from.outgoing().size(), to.wanted()));
    to.receive(part);
    from.sent(part.size());
  }
}

void feed(Handshake& handshake, ByteView bytes, size_t piece) {
  while (!bytes.empty() && handshake.wanted() > 0) {
    size_t count = std::min({bytes.size(), handshake.wanted(), piece});
    handshake.receive(bytes.first(count));
    bytes = bytes.subspan(count);
  }
  if (handshake.state() == State::proven || handshake.state() == State::done) std::abort();
  if ((handshake.state() == State::failed) == handshake.status().ok()) std::abort();
  if (handshake.state() == State::running && handshake.wanted() == 0) std::abort();
}

}  // namespace
}  // namespace hvd

// The first byte selects how far a real conversation has come before arbitrary bytes follow, and the size of the
// pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  if (size == 0) return 0;
  static const Key key = Key::from_hex("000102030405060708090a0b0c0d0e0f").value();
  Nonce nonce{};
  Handshake caller = Handshake::caller(key, {.purpose = Purpose::data, .from = 0, .to = 1}, nonce);
  Handshake called = Handshake::called(key, {.purposes = {Purpose::store, Purpose::data}, .rank = 1}, nonce);
  if ((data[0] & 1) != 0) {
    pass(caller, called);
    pass(called, caller);
    caller.prove();
  }
  ByteView bytes = std::as_bytes(std::span(data + 1, size - 1));
  size_t piece = size_t{data[0]} / 2 + 1;
  feed(called, bytes, piece);
  feed(caller, bytes, piece);
  return 0;
}
