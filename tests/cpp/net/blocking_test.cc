#include "net/blocking.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <thread>

#include "connections.h"

namespace hvd {
namespace {

using testing::HasSubstr;
using namespace test;

std::unique_ptr<BlockingAcceptor> acceptor_with(const Key& key) {
  return std::move(*BlockingAcceptor::create({ip("127.0.0.1")}, key));
}

Result<std::unique_ptr<BlockingStream>> connect_to(uint16_t port, const Key& key) {
  return connect_blocking("the server", {{"127.0.0.1", port}}, key, Clock::now() + kLong);
}

struct Pair {
  std::unique_ptr<BlockingStream> client, server;
};

Pair make_pair() {
  Key key = Key::random().value();
  auto acceptor = acceptor_with(key);
  Pair pair;
  std::jthread thread([&] { pair.server = std::move(*acceptor->accept()); });
  pair.client = std::move(*connect_to(acceptor->port(), key));
  thread.join();
  return pair;
}

TEST(Blocking, AWaitEndsWithCloseOfEitherSide) {
  for (bool own : {true, false}) {
    Pair pair = make_pair();
    std::jthread thread([&] { (own ? pair.client : pair.server)->close(); });
    std::array<std::byte, 8> data;
    EXPECT_EQ(pair.client->receive(data, kNever).status().code(), Code::peer_lost);
  }
}

TEST(Blocking, ASendToAPeerThatDoesNotReadEndsWithClose) {
  Pair pair = make_pair();
  Bytes data(64 << 20);
  std::jthread thread([&] {
    std::array<std::byte, 1> one;
    EXPECT_EQ(pair.server->receive(one, kNever).value(), 1u);
    pair.client->close();
  });
  Result<size_t> sent = size_t{0};
  for (ByteView rest = data; sent.ok() && !rest.empty(); rest = rest.subspan(sent.ok() ? *sent : 0)) {
    sent = pair.client->send(rest);
  }
  EXPECT_EQ(sent.status().code(), Code::peer_lost);
}

TEST(Blocking, SilenceHasALimit) {
  Pair pair = make_pair();
  std::array<std::byte, 8> data;
  EXPECT_EQ(pair.client->receive(data, Clock::now() + 10ms).status().code(), Code::timed_out);
}

TEST(Blocking, ASignalReturnsToTheCaller) {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  ::sigaction(SIGUSR1, &nothing, nullptr);
  Pair pair = make_pair();
  pthread_t waiting = ::pthread_self();
  std::atomic<bool> done = false;
  std::jthread thread([&] {
    while (!done) {
      ::pthread_kill(waiting, SIGUSR1);
      std::this_thread::yield();
    }
  });
  std::array<std::byte, 8> data;
  auto received = pair.client->receive(data, kNever);
  done = true;
  EXPECT_EQ(received.value(), 0u);
}

TEST(Blocking, RefusalsAreFinal) {
  Key key = Key::random().value();
  auto acceptor = acceptor_with(key);
  std::jthread thread([&] { EXPECT_EQ(acceptor->accept().status().code(), Code::aborted); });
  auto stranger = connect_to(acceptor->port(), Key::random().value());
  EXPECT_EQ(stranger.status().code(), Code::precondition);
  EXPECT_THAT(std::string(stranger.status().message()), HasSubstr("another key"));
  acceptor->close();
  thread.join();
  uint16_t port = acceptor->port();
  acceptor.reset();
  EXPECT_THAT(std::string(connect_to(port, key).status().message()), HasSubstr("connection refused"));
}

}  // namespace
}  // namespace hvd
