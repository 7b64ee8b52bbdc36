#include "net/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace hvd {
namespace {

using testing::HasSubstr;
using State = Handshake::State;

const Key kKey = *Key::random(), kOtherKey = *Key::random();
const Identity kIdentity{.purpose = Purpose::data, .generation = Generation{7}, .from = 3, .to = 5, .stripe = 2};
const Welcome kWelcome{.purposes = {Purpose::control, Purpose::data}, .generation = Generation{7}, .rank = 5};

Handshake caller(const Key& key = kKey, const Identity& identity = kIdentity, uint8_t version = kProtocolVersion) {
  return Handshake::caller(key, identity, *random_nonce(), version);
}
Handshake called(const Key& key = kKey, const Welcome& welcome = kWelcome, uint8_t version = kProtocolVersion) {
  return Handshake::called(key, welcome, *random_nonce(), version);
}

// Transfers pieces of at most `piece` bytes; returns the bytes that arrived.
Bytes deliver(Handshake& from, Handshake& to, size_t piece) {
  Bytes all;
  while (!from.outgoing().empty()) {
    size_t count = std::min({from.outgoing().size(), to.wanted(), piece});
    if (count == 0) break;
    ByteView part = from.outgoing().first(count);
    all.insert(all.end(), part.begin(), part.end());
    to.receive(part);
    from.sent(count);
  }
  return all;
}

void feed(Handshake& to, ByteView bytes) {
  while (!bytes.empty() && to.wanted() > 0) {
    size_t count = std::min(bytes.size(), to.wanted());
    to.receive(bytes.first(count));
    bytes = bytes.subspan(count);
  }
}

// What both sides said.
struct Conversation {
  Bytes of_caller, of_called;
};

Conversation converse(Handshake& from, Handshake& to, size_t piece = 1000) {
  Conversation said;
  for (int i = 0; i < 10; i++) {
    if (from.state() == State::proven) from.prove();
    Bytes up = deliver(from, to, piece), down = deliver(to, from, piece);
    said.of_caller.insert(said.of_caller.end(), up.begin(), up.end());
    said.of_called.insert(said.of_called.end(), down.begin(), down.end());
  }
  return said;
}

TEST(Handshake, TwoWithTheSameKeyAgreeWhateverThePieces) {
  for (size_t piece : {1u, 7u, 1000u}) {
    Handshake from = caller(), to = called();
    converse(from, to, piece);
    EXPECT_EQ(from.state(), State::done);
    EXPECT_EQ(to.state(), State::done);
    EXPECT_EQ(to.identity(), kIdentity);
    EXPECT_TRUE(from.outgoing().empty() && to.outgoing().empty());
  }
}

TEST(Handshake, TheCalledSideIsSilentUntilItHasAWholeHello) {
  Handshake from = caller(), to = called();
  ByteView hello = from.outgoing();
  feed(to, hello.first(hello.size() - 1));
  EXPECT_TRUE(to.outgoing().empty());
  feed(to, hello.last(1));
  EXPECT_FALSE(to.outgoing().empty());
}

TEST(Handshake, TheCallerGivesItsProofOnlyWhenAsked) {
  Handshake from = caller(), to = called();
  deliver(from, to, 1000);
  deliver(to, from, 1000);
  EXPECT_EQ(from.state(), State::proven);
  EXPECT_TRUE(from.outgoing().empty());
  EXPECT_EQ(from.wanted(), 0u);
}

TEST(Handshake, AnotherKeyIsToldOnBothSides) {
  Handshake from = caller(), to = called(kOtherKey);
  converse(from, to);
  EXPECT_EQ(from.state(), State::failed);
  EXPECT_TRUE(from.is_refused());
  EXPECT_EQ(from.status().code(), Code::precondition);
  EXPECT_THAT(std::string(from.status().message()), HasSubstr("another key"));
  EXPECT_EQ(to.state(), State::failed);
  EXPECT_THAT(std::string(to.status().message()), HasSubstr("another key"));
}

TEST(Handshake, AnotherVersionIsToldOnBothSides) {
  Handshake from = caller(kKey, kIdentity, 9), to = called();
  converse(from, to);
  EXPECT_TRUE(from.is_refused());
  EXPECT_THAT(std::string(from.status().message()), HasSubstr("it speaks version 1"));
  EXPECT_EQ(to.state(), State::failed);
  EXPECT_THAT(std::string(to.status().message()), HasSubstr("it speaks version 9"));
}

struct Mismatch {
  Identity identity;
  const char* caller_hears;
};
class HandshakeMismatch : public testing::TestWithParam<Mismatch> {};

TEST_P(HandshakeMismatch, IsRefusedWithTheReason) {
  Handshake from = caller(kKey, GetParam().identity), to = called();
  converse(from, to);
  EXPECT_TRUE(from.is_refused());
  EXPECT_EQ(from.status().message(), GetParam().caller_hears);
  EXPECT_EQ(to.state(), State::failed);
  EXPECT_THAT(std::string(to.status().message()), HasSubstr("rank 3 wants"));
}

INSTANTIATE_TEST_SUITE_P(
    All, HandshakeMismatch,
    testing::Values(Mismatch{{.purpose = Purpose::data, .generation = Generation{8}, .from = 3, .to = 5},
                             "it is in generation 7, not 8"},
                    Mismatch{{.purpose = Purpose::data, .generation = Generation{7}, .from = 3, .to = 6},
                             "it is rank 5, not rank 6"},
                    Mismatch{{.purpose = Purpose::store, .generation = Generation{7}, .from = 3, .to = 5},
                             "it takes no store connections"}));

TEST(Handshake, ARecordedConversationIsWorthNothing) {
  Handshake from = caller(), to = called();
  Conversation recorded = converse(from, to);
  ASSERT_EQ(to.state(), State::done);

  Handshake victim = called();
  feed(victim, recorded.of_caller);
  EXPECT_EQ(victim.state(), State::failed);
  EXPECT_THAT(std::string(victim.status().message()), HasSubstr("could not prove"));

  Handshake fooled = caller();
  feed(fooled, recorded.of_called);
  EXPECT_EQ(fooled.state(), State::failed);
}

TEST(Handshake, AReflectedChallengeIsRefused) {
  // The attacker calls the victim back with the victim's own hello and hopes to be given the answers.
  Handshake victim = caller(), own_listener = called();
  feed(own_listener, victim.outgoing());
  Bytes challenge(own_listener.outgoing().begin(), own_listener.outgoing().end());
  // Its challenge as a proof: the same bytes under the same key, but another kind and another label.
  Bytes as_proof(challenge.begin(), challenge.begin() + 8);
  as_proof[5] = std::byte{3};
  as_proof[6] = std::byte{32};
  as_proof.insert(as_proof.end(), challenge.end() - 32, challenge.end());
  feed(own_listener, as_proof);
  EXPECT_EQ(own_listener.state(), State::failed);
  // A caller's bytes sent back to it.
  Handshake mirrored = caller();
  Bytes own(mirrored.outgoing().begin(), mirrored.outgoing().end());
  feed(mirrored, own);
  EXPECT_EQ(mirrored.state(), State::failed);
}

TEST(Handshake, ARelayToAnotherRankIsRefused) {
  // Somebody passes everything on to rank 6 instead of rank 5.
  Welcome six = kWelcome;
  six.rank = 6;
  Handshake from = caller(), to = called(kKey, six);
  converse(from, to);
  EXPECT_EQ(from.state(), State::failed);
  EXPECT_EQ(to.state(), State::failed);
}

TEST(Handshake, EveryChangedBitIsNoticed) {
  Handshake model_from = caller(), model_to = called();
  Conversation model = converse(model_from, model_to);
  for (size_t at = 0; at < model.of_caller.size() + model.of_called.size(); at++) {
    Handshake from = caller(), to = called();
    size_t up = 0, down = model.of_caller.size();
    auto pass = [&](Handshake& source, Handshake& sink, size_t& position) {
      while (!source.outgoing().empty() && sink.wanted() > 0) {
        std::byte one = source.outgoing().front();
        if (position++ == at) one ^= std::byte{0x10};
        source.sent(1);
        sink.receive({&one, 1});
      }
    };
    for (int i = 0; i < 10; i++) {
      if (from.state() == State::proven) from.prove();
      pass(from, to, up);
      pass(to, from, down);
    }
    const Handshake& deceived = at < model.of_caller.size() ? to : from;
    EXPECT_NE(deceived.state(), State::done) << "byte " << at;
  }
}

struct Stranger {
  std::string bytes;
  const char* heard;
};
class HandshakeStranger : public testing::TestWithParam<Stranger> {};

TEST_P(HandshakeStranger, IsSentNothingAndNamed) {
  Handshake to = called();
  feed(to, std::as_bytes(std::span(GetParam().bytes)));
  EXPECT_EQ(to.state(), State::failed);
  EXPECT_FALSE(to.is_refused());
  EXPECT_TRUE(to.outgoing().empty());
  EXPECT_THAT(std::string(to.status().message()), HasSubstr(GetParam().heard));
}

INSTANTIATE_TEST_SUITE_P(
    All, HandshakeStranger,
    testing::Values(Stranger{"GET / HTTP/1.1\r\n\r\n", "HTTP"}, Stranger{"PUT /global/rank_0 HTTP/1.1\r\n\r\n", "HTTP"},
                    Stranger{"\x80\x04\x95\x10", "pickled"}, Stranger{"\x16\x03\x01\x02", "HOROVOD_TLS"},
                    Stranger{"x", "does not speak"}, Stranger{"hvd\xa7\x01\x01\xff\xff", "65535 bytes"},
                    Stranger{std::string("hvd\xa7\x01\x03\x20\x00", 8), "out of turn"},
                    Stranger{std::string("hvd\xa7\x01\x09\x01\x00", 8), "out of turn"},
                    Stranger{std::string("hvd\xa7\x01\x01\x34\x00", 8), "out of turn"},
                    Stranger{std::string("hvd\xa7\x01\x01\x35\x00", 8) + std::string(53, '\x7f'), "is malformed"}));

}  // namespace
}  // namespace hvd
