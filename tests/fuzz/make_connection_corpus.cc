// The first inputs of the fuzzers of connections: messages of real ones.
#include <string>

#include "fuzz/corpus_file.h"
#include "fuzz/steps.h"
#include "net/handshake.h"
#include "rendezvous/store_messages.h"

namespace hvd {
namespace {

void pass(Handshake& from, Handshake& to, Bytes& record) {
  while (!from.outgoing().empty() && to.wanted() > 0) {
    ByteView part = from.outgoing().first(std::min(from.outgoing().size(), to.wanted()));
    record.insert(record.end(), part.begin(), part.end());
    to.receive(part);
    from.sent(part.size());
  }
}

// Nonces are fixed so that the files stay the same, and others than the fuzzer's, which must not let these in.
void write_handshakes(const std::filesystem::path& folder) {
  Key key = Key::from_hex("000102030405060708090a0b0c0d0e0f").value();
  Nonce ours, theirs;
  ours.fill(std::byte{1});
  theirs.fill(std::byte{2});
  for (uint8_t version : {kProtocolVersion, uint8_t{2}}) {
    Handshake caller = Handshake::caller(key, {.purpose = Purpose::data, .from = 0, .to = 1}, ours, version);
    Handshake called = Handshake::called(key, {.purposes = {Purpose::data}, .rank = 1}, theirs);
    Bytes up{std::byte{63}}, down{std::byte{62}};
    pass(caller, called, up);
    pass(called, caller, down);
    if (caller.state() == Handshake::State::proven) {
      caller.prove();
      Bytes proof{std::byte{255}}, verdict{std::byte{255}};
      pass(caller, called, proof);
      pass(called, caller, verdict);
      write_file(folder / "proof", proof);
      write_file(folder / "verdict", verdict);
    }
    write_file(folder / ("caller_" + std::to_string(version)), up);
    write_file(folder / ("called_" + std::to_string(version)), down);
  }
}

void write_frames(const std::filesystem::path& folder) {
  Bytes frames{std::byte{2}};
  Encoder out(frames);
  for (size_t length : {0u, 5u, 200u}) {
    for (size_t byte : {length, size_t{0}, size_t{0}, size_t{0}}) out.u8(static_cast<uint8_t>(byte));
    out.bytes(Bytes(length, std::byte{7}));
  }
  write_file(folder / "three", frames);
}

void write_store(const std::filesystem::path& folder) {
  Bytes conversation;
  auto say = [&](uint8_t client, const StoreRequest& request) {
    write_step(conversation, {.rank = client, .message = encode(request)});
  };
  Bytes value(5);
  say(0, {.id = 1, .verb = StoreVerb::gather, .key = "1/", .count = 2});
  say(1, {.id = 1, .verb = StoreVerb::get, .key = "1/b"});
  say(2, {.id = 1, .verb = StoreVerb::set, .key = "1/a", .value = value});
  say(2, {.id = 2, .verb = StoreVerb::set, .key = "1/b", .value = value});
  say(3, {.id = 1, .verb = StoreVerb::remove, .key = "1/"});
  write_step(conversation, {.message = encode(StoreReply{.id = 1, .entries = {{"1/a", value}}})});
  write_file(folder / "meeting", conversation);
}

}  // namespace

void write_connection_corpus(const std::filesystem::path& folder) {
  write_handshakes(folder / "handshake");
  write_frames(folder / "frames");
  write_store(folder / "store");
}

}  // namespace hvd
