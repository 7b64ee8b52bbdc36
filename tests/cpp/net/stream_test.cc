// What every Stream does, whatever is below: one suite over plain TCP, TLS and Unix sockets.
#include "net/stream.h"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <thread>

#include "net/connections.h"
#include "net/framed.h"

namespace hvd {
namespace {

using namespace test;
using testing::HasSubstr;

enum class Below { unix_socket, tcp4, tcp6, tls, tls_from_key };

void PrintTo(Below below, std::ostream* out) {
  *out << std::array{"unix_socket", "tcp4", "tcp6", "tls", "tls_from_key"}[static_cast<size_t>(below)];
}

struct Pair {
  std::unique_ptr<Stream> a, b;
};

Pair make_pair(Below below) {
  if (below == Below::unix_socket) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    return {make_plain_stream(UniqueFd(ends[0])), make_plain_stream(UniqueFd(ends[1]))};
  }
  Credentials credentials = make_credentials(below == Below::tls);
  if (below == Below::tls_from_key) credentials.tls = TlsContext::from_key(credentials.key).value();
  auto acceptor = make_acceptor(credentials, 0, {}, below == Below::tcp6 ? "::1" : "127.0.0.1");
  auto connector = make_connector(credentials, acceptor->endpoints(), identity_of(1, 0));
  Met met = meet(*acceptor, *connector);
  EXPECT_TRUE(met.caller.ok()) << met.caller.status().message();
  return {std::move(*met.caller), std::move(met.accepted.at(0).stream)};
}

class StreamTest : public testing::TestWithParam<Below> {};

Bytes pattern(size_t size) {
  Bytes bytes(size);
  uint32_t state = 1;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

void write_all(Stream& stream, ByteView bytes) {
  while (!bytes.empty()) {
    auto count = stream.write(bytes);
    ASSERT_TRUE(count.ok()) << count.status().message();
    bytes = bytes.subspan(*count);
    ASSERT_TRUE(*count > 0 || wait_any({stream.descriptor()}, POLLOUT));
  }
}

Bytes read_exactly(Stream& stream, size_t size) {
  Bytes bytes(size);
  size_t filled = 0;
  while (filled < size) {
    auto count = stream.read(std::span(bytes).subspan(filled));
    EXPECT_TRUE(count.ok()) << count.status().message();
    if (!count.ok()) break;
    filled += *count;
    if (*count == 0 && !wait_any({stream.descriptor()})) break;
  }
  return bytes;
}

// Sends and receives `data` at the same time.
void swap_data(Stream& stream, const Bytes& data) {
  size_t sent = 0, received = 0;
  Bytes got(data.size());
  while (sent < data.size() || received < data.size()) {
    auto written = stream.write(ByteView(data).subspan(sent));
    auto read = stream.read(std::span(got).subspan(received));
    ASSERT_TRUE(written.ok() && read.ok());
    sent += *written;
    received += *read;
    if (*written + *read > 0) continue;
    ASSERT_TRUE(wait_any({stream.descriptor()}, sent < data.size() ? POLLIN | POLLOUT : POLLIN));
  }
  EXPECT_EQ(got, data);
}

TEST_P(StreamTest, MovesBytesInOrderInBothDirectionsAtOnce) {
  Pair pair = make_pair(GetParam());
  Bytes data = pattern(3 << 20);
  std::jthread other([&] { swap_data(*pair.b, data); });
  swap_data(*pair.a, data);
}

TEST_P(StreamTest, NothingToReadIsZeroAndNotAnError) {
  Pair pair = make_pair(GetParam());
  std::byte one;
  auto count = pair.a->read({&one, 1});
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 0u);
  EXPECT_FALSE(pair.a->has_buffered());
  EXPECT_EQ(pair.a->read({}).value(), 0u);
  EXPECT_EQ(pair.a->write({}).value(), 0u);
}

TEST_P(StreamTest, AFullStreamTakesNoMoreAndGoesOnLater) {
  Pair pair = make_pair(GetParam());
  Bytes data = pattern(64 << 10);
  size_t sent = 0;
  for (;;) {
    auto count = pair.a->write(ByteView(data).subspan(sent % data.size()));
    ASSERT_TRUE(count.ok());
    if (*count == 0) break;
    sent += *count;
  }
  EXPECT_GT(sent, 0u);
  size_t received = 0;
  std::jthread writer([&, first = sent % data.size()] { write_all(*pair.a, ByteView(data).subspan(first)); });
  size_t total = sent + data.size() - sent % data.size();
  while (received < total) {
    Bytes part = read_exactly(*pair.b, std::min<size_t>(total - received, 1000));
    for (std::byte byte : part) ASSERT_EQ(byte, data[received++ % data.size()]);
  }
}

TEST_P(StreamTest, WhatIsBufferedIsToldAndCanBeRead) {
  Pair pair = make_pair(GetParam());
  Bytes data = pattern(1000);
  write_all(*pair.a, data);
  ASSERT_TRUE(wait_any({pair.b->descriptor()}));
  Bytes first = read_exactly(*pair.b, 1);
  // Either the kernel has the rest, or the stream reports that it has.
  pollfd one{.fd = pair.b->descriptor(), .events = POLLIN, .revents = 0};
  EXPECT_TRUE(pair.b->has_buffered() || ::poll(&one, 1, 0) == 1);
  Bytes rest = read_exactly(*pair.b, 999);
  EXPECT_EQ(rest.back(), data.back());
  std::byte none;
  EXPECT_EQ(pair.b->read({&none, 1}).value(), 0u);
  EXPECT_FALSE(pair.b->has_buffered());
}

TEST_P(StreamTest, WhatWasSentBeforeTheEndArrivesAndThenTheEnd) {
  Pair pair = make_pair(GetParam());
  Bytes data = pattern(5000);
  write_all(*pair.a, data);
  pair.a = nullptr;
  EXPECT_EQ(read_exactly(*pair.b, data.size()), data);
  for (int i = 0; i < 2; i++) {
    std::byte one;
    Result<size_t> end = size_t{0};
    while ((end = pair.b->read({&one, 1})).ok()) ASSERT_TRUE(wait_any({pair.b->descriptor()}));
    EXPECT_EQ(end.status().code(), Code::peer_lost);
    EXPECT_THAT(std::string(end.status().message()), HasSubstr("closed by the peer"));
  }
}

TEST_P(StreamTest, WritingToAPeerThatIsGoneIsAnErrorAndNoSignal) {
  Pair pair = make_pair(GetParam());
  pair.b = nullptr;
  Bytes data = pattern(100);
  Result<size_t> result = size_t{0};
  while ((result = pair.a->write(data)).ok()) ASSERT_TRUE(wait_any({pair.a->descriptor()}, POLLIN));
  EXPECT_EQ(result.status().code(), Code::peer_lost);
}

TEST_P(StreamTest, AMessageComesWholeWhateverItsSize) {
  Pair pair = make_pair(GetParam());
  FramedStream a(std::move(pair.a), {});
  FramedStream b(std::move(pair.b), {});
  std::vector<size_t> sizes{0, 1, 4, 100000, 1 << 20, 3, 0};
  for (size_t size : sizes) ASSERT_TRUE(a.send(pattern(size)).ok());
  for (size_t size : sizes) {
    for (;;) {
      ASSERT_TRUE(a.flush().ok());
      auto message = b.receive();
      ASSERT_TRUE(message.ok()) << message.status().message();
      if (!*message) {
        ASSERT_TRUE(a.has_unsent() || wait_any({b.descriptor()}));
        continue;
      }
      EXPECT_EQ(**message, pattern(size));
      break;
    }
  }
  EXPECT_FALSE(a.has_unsent());
}

TEST_P(StreamTest, TooLargeAMessageIsRefusedOnBothSides) {
  Pair pair = make_pair(GetParam());
  FramedStream small(std::move(pair.a), {.largest_received = 100, .largest_sent = 100});
  FramedStream large(std::move(pair.b), {});
  EXPECT_EQ(small.send(pattern(101)).code(), Code::invalid_argument);
  ASSERT_TRUE(large.send(pattern(101)).ok());
  ASSERT_TRUE(wait_any({small.descriptor()}));
  Result<std::optional<Bytes>> received = std::optional<Bytes>();
  while (received.ok()) received = small.receive();
  EXPECT_THAT(std::string(received.status().message()), HasSubstr("101 bytes, more than the 100 allowed"));
}

TEST_P(StreamTest, APeerThatDoesNotReadFillsTheQueueToItsLimitAndNoFurther) {
  Pair pair = make_pair(GetParam());
  FramedStream a(std::move(pair.a), {.queued = 1000000});
  Bytes data = pattern(100000);
  Status status;
  size_t sent = 0;
  while ((status = a.send(data)).ok() && sent < (size_t{1} << 30)) sent += data.size();
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not read"));
}

INSTANTIATE_TEST_SUITE_P(All, StreamTest,
                         testing::Values(Below::unix_socket, Below::tcp4, Below::tcp6, Below::tls, Below::tls_from_key),
                         testing::PrintToStringParamName());

TEST(FrameReader, MemoryFollowsWhatHasArrived) {
  FrameReader reader(1 << 30);
  std::array<uint8_t, 4> header{0, 0, 0, 0x30};
  ASSERT_EQ(reader.space().size(), 4u);
  std::memcpy(reader.space().data(), header.data(), 4);
  reader.filled(4);
  EXPECT_TRUE(reader.status().ok());
  EXPECT_LE(reader.space().size(), 64u << 10);
}

}  // namespace
}  // namespace hvd
