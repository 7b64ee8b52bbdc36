// What the tests of connections share: credentials, pairs of streams, and a way to wait for something to happen.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/acceptor.h"
#include "net/connector.h"

namespace hvd::test {

using namespace std::chrono_literals;

inline constexpr Duration kLong = 60s;  // only a hanging test reaches this

inline Credentials make_credentials(bool tls) {
  Credentials credentials{.key = Key::random().value()};
  if (tls) credentials.tls = TlsContext::create(make_tls_identity().value()).value();
  return credentials;
}

inline IpAddress ip(std::string_view text) { return parse_ip(text).value(); }

inline size_t count_descriptors() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Waits for any of the descriptors; false when a hanging test should give up.
inline bool wait_any(const std::vector<int>& descriptors, short events = POLLIN) {
  std::vector<pollfd> all;
  for (int descriptor : descriptors) all.push_back({.fd = descriptor, .events = events, .revents = 0});
  return ::poll(all.data(), all.size(), 60000) > 0;
}

inline Welcome welcome_of(int32_t rank) { return {.purposes = {Purpose::data}, .rank = rank}; }
inline Identity identity_of(int32_t from, int32_t to) { return {.purpose = Purpose::data, .from = from, .to = to}; }

inline std::unique_ptr<Acceptor> make_acceptor(const Credentials& credentials, int32_t rank = 0,
                                               AcceptorLimits limits = {}, std::string_view address = "127.0.0.1") {
  auto listener = listen_on(std::vector{ip(address)});
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  auto acceptor = Acceptor::create(std::move(*listener), credentials, welcome_of(rank), limits);
  EXPECT_TRUE(acceptor.ok());
  return std::move(*acceptor);
}

// A connected socket of a process that does not follow the protocol.
inline UniqueFd connect_raw(const Acceptor& acceptor) {
  const SocketAddress& address = acceptor.endpoints()[0].address;
  UniqueFd socket(::socket(address.ip.is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  RawAddress raw = raw_of(address);
  EXPECT_EQ(::connect(socket.get(), raw.get(), raw.length), 0);
  return socket;
}

inline void send_raw(const UniqueFd& socket, std::string_view bytes) {
  EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

// What is read until the other side closes.
inline std::string read_to_end(const UniqueFd& socket) {
  std::string all;
  char buffer[256];
  for (;;) {
    ssize_t count = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (count <= 0) return all;
    all.append(buffer, static_cast<size_t>(count));
  }
}

// Drives the acceptor until `done`, with the real time.
inline void drive(Acceptor& acceptor, std::vector<Accepted>& accepted, const std::function<bool()>& done) {
  while (acceptor.poll(Clock::now(), accepted), !done()) ASSERT_TRUE(wait_any({acceptor.descriptor()}));
}

struct Met {
  Result<std::unique_ptr<Stream>> caller = Status(Code::unknown, "not met");
  std::vector<Accepted> accepted;
};

// Drives both sides until the connector has its outcome and, if that is good, the acceptor has accepted. For them no
// more than a millisecond passes from one look to the next, so that no limit of theirs ends while this process stands
// still.
inline Met meet(Acceptor& acceptor, Connector& connector, TimePoint now = Clock::now()) {
  Met met;
  std::optional<Result<std::unique_ptr<Stream>>> outcome;
  for (;; now = std::min(Clock::now(), now + 1ms)) {
    acceptor.poll(now, met.accepted);
    if (!outcome) outcome = connector.poll(now);
    if (outcome && (!outcome->ok() || !met.accepted.empty())) break;
    std::vector<int> descriptors{acceptor.descriptor()};
    if (!outcome) descriptors.push_back(connector.descriptor());
    if (!wait_any(descriptors)) {
      ADD_FAILURE() << "they did not meet";
      return met;
    }
  }
  met.caller = std::move(*outcome);
  return met;
}

inline std::unique_ptr<Connector> make_connector(const Credentials& credentials, std::vector<Endpoint> endpoints,
                                                 const Identity& identity, Duration limit = kLong,
                                                 ConnectorSettings settings = {}, TimePoint now = Clock::now()) {
  auto connector = Connector::create({.name = "rank 0", .endpoints = std::move(endpoints), .identity = identity},
                                     credentials, now, now + limit, settings);
  EXPECT_TRUE(connector.ok());
  return std::move(*connector);
}

}  // namespace hvd::test
