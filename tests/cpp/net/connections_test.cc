// Acceptor and connector over real sockets, among peers and strangers.
#include "net/connections.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <thread>

namespace hvd {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string text(const Result<std::unique_ptr<Stream>>& result) { return std::string(result.status().message()); }

Endpoint endpoint(std::string_view address) { return {.address = parse_socket_address(address).value()}; }

// A port without a listener: bound, so that no other process gets it.
struct DeadPort {
  UniqueFd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Endpoint endpoint;
  DeadPort() {
    RawAddress raw = raw_of({.ip = ip("127.0.0.1")});
    EXPECT_EQ(::bind(socket.get(), raw.get(), raw.length), 0);
    EXPECT_EQ(::getsockname(socket.get(), raw.get(), &raw.length), 0);
    endpoint = {.address = address_of(raw.get()).value(), .interface = "lo"};
  }
};

class ConnectionsTest : public testing::TestWithParam<bool> {
 protected:
  Credentials credentials_ = make_credentials(GetParam());
};

TEST_P(ConnectionsTest, TheAcceptorLearnsWhoCalls) {
  auto acceptor = make_acceptor(credentials_, 5);
  Identity identity{.purpose = Purpose::data, .generation = Generation{9}, .from = 3, .to = 5, .stripe = 2};
  auto connector = make_connector(credentials_, acceptor->endpoints(), identity);
  Met met = meet(*acceptor, *connector);
  ASSERT_TRUE(met.caller.ok()) << text(met.caller);
  EXPECT_EQ(met.accepted[0].identity, identity);
  EXPECT_TRUE(met.accepted[0].from.ip.is_loopback());
  EXPECT_EQ(acceptor->half_open(), 0u);
}

TEST_P(ConnectionsTest, AnotherKeyIsRefusedAtOnceOnBothSides) {
  auto acceptor = make_acceptor(credentials_);
  Credentials wrong{.key = Key::random().value(), .tls = credentials_.tls};
  auto connector = make_connector(wrong, acceptor->endpoints(), identity_of(1, 0));
  Met met = meet(*acceptor, *connector);
  EXPECT_EQ(met.caller.status().code(), Code::precondition);
  EXPECT_THAT(text(met.caller), HasSubstr("another key"));
  drive(*acceptor, met.accepted, [&] { return acceptor->dropped() == 1; });
  EXPECT_TRUE(met.accepted.empty());
}

TEST_P(ConnectionsTest, AnotherRankIsToldApart) {
  auto acceptor = make_acceptor(credentials_, 5);
  auto connector = make_connector(credentials_, acceptor->endpoints(), identity_of(1, 6));
  Met met = meet(*acceptor, *connector);
  EXPECT_THAT(text(met.caller), HasSubstr("it is rank 5, not rank 6"));
}

TEST_P(ConnectionsTest, TheFirstAddressThatWorksWins) {
  auto acceptor = make_acceptor(credentials_);
  auto other_rank = make_acceptor(credentials_, 7);
  DeadPort dead;
  auto connector = make_connector(credentials_, {dead.endpoint, other_rank->endpoints()[0], acceptor->endpoints()[0]},
                                  identity_of(1, 0));
  std::jthread other([&](const std::stop_token& stop) {
    std::vector<Accepted> none;
    while (!stop.stop_requested()) {
      other_rank->poll(Clock::now(), none);
      pollfd one{.fd = other_rank->descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&one, 1, 10);
    }
    EXPECT_TRUE(none.empty());
  });
  Met met = meet(*acceptor, *connector);
  EXPECT_TRUE(met.caller.ok()) << text(met.caller);
}

TEST_P(ConnectionsTest, AHangingAddressDoesNotHoldUpTheOthers) {
  // Listens, and never accepts or answers.
  auto silent = listen_on(std::vector{ip("127.0.0.1")});
  auto acceptor = make_acceptor(credentials_);
  auto connector = make_connector(credentials_, {silent->endpoints[0], acceptor->endpoints()[0]}, identity_of(1, 0),
                                  kLong, {.stagger = 1ms, .patience = kLong});
  Met met = meet(*acceptor, *connector);
  EXPECT_TRUE(met.caller.ok()) << text(met.caller);
}

TEST_P(ConnectionsTest, APeerThatStartsLaterIsReached) {
  DeadPort dead;
  auto connector = make_connector(credentials_, {dead.endpoint}, identity_of(1, 0));
  TimePoint refused_at = Clock::now();
  while (!connector->poll(Clock::now()) && Clock::now() < refused_at + 20ms) wait_any({connector->descriptor()});
  uint16_t port = dead.endpoint.address.port;
  dead.socket = UniqueFd();
  auto listener = listen_on(std::vector{ip("127.0.0.1")}, {.first = port, .last = port});
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  auto acceptor = Acceptor::create(std::move(*listener), credentials_, welcome_of(0));
  Met met = meet(**acceptor, *connector);
  EXPECT_TRUE(met.caller.ok()) << text(met.caller);
}

TEST_P(ConnectionsTest, AFailureListsEveryAddressAndItsResult) {
  auto silent = listen_on(std::vector{ip("127.0.0.1")});
  auto other_job = make_acceptor(make_credentials(GetParam()));
  DeadPort dead;
  std::vector<Endpoint> endpoints{dead.endpoint, silent->endpoints[0], other_job->endpoints()[0],
                                  endpoint("[fe80::1%lo]:9")};
  TimePoint now = Clock::now();
  auto connector =
      make_connector(credentials_, endpoints, identity_of(1, 0), 300ms, {.stagger = 1ms, .patience = 100ms}, now);
  Met met = meet(*other_job, *connector, now);
  EXPECT_EQ(met.caller.status().code(), Code::unknown);
  EXPECT_THAT(text(met.caller), StartsWith("cannot connect to rank 0 in 0.3 s: "));
  EXPECT_THAT(text(met.caller), HasSubstr(to_text(dead.endpoint) + ": connection refused ("));
  EXPECT_THAT(text(met.caller), HasSubstr(to_text(silent->endpoints[0]) + ": connected, but no handshake in 0."));
  EXPECT_THAT(text(met.caller), HasSubstr(to_text(other_job->endpoints()[0]) + ": "));
  EXPECT_THAT(text(met.caller), HasSubstr("[fe80::1%lo]:9: "));
  EXPECT_THAT(text(met.caller), Not(HasSubstr("not tried")));
}

TEST_P(ConnectionsTest, NoAddressIsAnErrorOfItsOwn) {
  auto connector = Connector::create({.name = "rank 4"}, credentials_, Clock::now(), kNever);
  ASSERT_FALSE(connector.ok());
  EXPECT_THAT(std::string(connector.status().message()), HasSubstr("rank 4: it has no address"));
}

TEST_P(ConnectionsTest, GarbageIsDroppedWithoutAnAnswer) {
  auto acceptor = make_acceptor(credentials_);
  for (const char* bytes : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x80\x04\x95\x05.pickle", "SSH-2.0-OpenSSH\r\n"}) {
    uint64_t before = acceptor->dropped();
    UniqueFd stranger = connect_raw(*acceptor);
    send_raw(stranger, bytes);
    std::vector<Accepted> accepted;
    drive(*acceptor, accepted, [&] { return acceptor->dropped() > before; });
    EXPECT_TRUE(accepted.empty());
    std::string answer = read_to_end(stranger);
    EXPECT_EQ(GetParam() ? "" : answer, "");  // TLS may answer with an alert
  }
}

TEST_P(ConnectionsTest, SilenceAndDribblingEndAtTheTimeLimit) {
  auto acceptor = make_acceptor(credentials_, 0, {.patience = kLong});
  UniqueFd silent = connect_raw(*acceptor), dribbling = connect_raw(*acceptor);
  std::vector<Accepted> accepted;
  drive(*acceptor, accepted, [&] { return acceptor->half_open() == 2; });
  TimePoint now = Clock::now();
  std::string slow =
      GetParam() ? std::string("\x16\x03\x01\x00\xf0\x01\x00\x00", 8) : std::string("hvd\xa7\x01\x01\x35\x00", 8);
  for (size_t i = 0; i < slow.size(); i++) {  // one byte every second
    send_raw(dribbling, slow.substr(i, 1));
    acceptor->poll(now + std::chrono::seconds(i), accepted);
    EXPECT_EQ(acceptor->half_open(), 2u);
  }
  acceptor->poll(now + kLong, accepted);
  EXPECT_EQ(acceptor->half_open(), 0u);
  EXPECT_EQ(acceptor->dropped(), 2u);
  EXPECT_EQ(read_to_end(silent), "");
}

TEST_P(ConnectionsTest, TheTimeLimitNeedsNobodyToCall) {
  auto acceptor = make_acceptor(credentials_, 0, {.patience = 20ms});
  UniqueFd silent = connect_raw(*acceptor);
  std::vector<Accepted> accepted;
  drive(*acceptor, accepted, [&] { return acceptor->dropped() == 1; });  // the descriptor alone wakes it
}

TEST_P(ConnectionsTest, TooManyHalfOpenConnectionsCostTheOldest) {
  auto acceptor = make_acceptor(credentials_, 0, {.half_open = 3, .patience = kLong});
  std::vector<UniqueFd> strangers;
  std::vector<Accepted> accepted;
  for (int i = 0; i < 5; i++) strangers.push_back(connect_raw(*acceptor));
  drive(*acceptor, accepted, [&] { return acceptor->dropped() == 2; });
  EXPECT_EQ(acceptor->half_open(), 3u);
  EXPECT_EQ(read_to_end(strangers[0]), "");
  EXPECT_EQ(read_to_end(strangers[1]), "");
  auto connector = make_connector(credentials_, acceptor->endpoints(), identity_of(1, 0));
  Met met = meet(*acceptor, *connector);
  EXPECT_TRUE(met.caller.ok()) << text(met.caller);
}

TEST_P(ConnectionsTest, AThousandStrangersDisturbNobodyAndLeaveNothingBehind) {
  size_t before = count_descriptors();
  {
    auto acceptor = make_acceptor(credentials_, 0, {.half_open = 64, .patience = 1s});
    std::vector<UniqueFd> strangers;
    std::vector<Accepted> accepted;
    constexpr int kRanks = 16;
    int wave = 0;
    for (int rank = 1; rank <= kRanks; rank++) {
      for (; wave < 1000 * rank / kRanks; wave++) {
        UniqueFd stranger = connect_raw(*acceptor);
        if (wave % 3 == 0) send_raw(stranger, "GET / HTTP/1.1\r\n\r\n");
        if (wave % 3 == 1) send_raw(stranger, "hvd");
        if (wave % 2 == 0) strangers.push_back(std::move(stranger));
        acceptor->poll(Clock::now(), accepted);
      }
      auto connector = make_connector(credentials_, acceptor->endpoints(), identity_of(rank, 0));
      Met met = meet(*acceptor, *connector);
      ASSERT_TRUE(met.caller.ok()) << text(met.caller);
      EXPECT_EQ(met.accepted[0].identity.from, rank);
    }
    drive(*acceptor, accepted, [&] { return acceptor->dropped() == 1000; });
    EXPECT_TRUE(accepted.empty());
    EXPECT_EQ(acceptor->half_open(), 0u);
  }
  EXPECT_EQ(count_descriptors(), before);
}

INSTANTIATE_TEST_SUITE_P(All, ConnectionsTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "tls" : "plain"; });

TEST(Connections, ARecordedHandshakeIsRefused) {
  Credentials credentials = make_credentials(false);
  auto acceptor = make_acceptor(credentials);
  // A process in the middle records the messages of a real caller.
  Nonce nonce = *random_nonce();
  Handshake caller = Handshake::caller(credentials.key, identity_of(1, 0), nonce);
  std::string recorded;
  std::vector<Accepted> accepted;
  UniqueFd socket = connect_raw(*acceptor);
  while (accepted.empty()) {
    if (caller.state() == Handshake::State::proven) caller.prove();
    std::string said(reinterpret_cast<const char*>(caller.outgoing().data()), caller.outgoing().size());
    if (!said.empty()) send_raw(socket, said);
    recorded += said;
    caller.sent(said.size());
    acceptor->poll(Clock::now(), accepted);
    std::array<std::byte, 128> buffer;
    ssize_t count = ::recv(socket.get(), buffer.data(), caller.wanted(), MSG_DONTWAIT);
    if (count > 0) caller.receive(std::span(buffer).first(static_cast<size_t>(count)));
  }
  UniqueFd replay = connect_raw(*acceptor);
  send_raw(replay, recorded);
  std::vector<Accepted> fooled;
  drive(*acceptor, fooled, [&] { return acceptor->dropped() == 1; });
  EXPECT_TRUE(fooled.empty());
}

TEST(Connections, AnotherVersionIsToldToBoth) {
  Credentials credentials = make_credentials(false);
  auto acceptor = make_acceptor(credentials);
  Handshake caller = Handshake::caller(credentials.key, identity_of(1, 0), *random_nonce(), 2);
  UniqueFd socket = connect_raw(*acceptor);
  send_raw(socket, {reinterpret_cast<const char*>(caller.outgoing().data()), caller.outgoing().size()});
  std::vector<Accepted> accepted;
  drive(*acceptor, accepted, [&] { return acceptor->dropped() == 1; });
  std::string answer = read_to_end(socket);
  ASSERT_EQ(answer.size(), 9u);
  caller.receive(std::as_bytes(std::span(answer)).first(8));
  caller.receive(std::as_bytes(std::span(answer)).subspan(8));
  EXPECT_THAT(std::string(caller.status().message()), HasSubstr("it speaks version 1"));
}

TEST(Connections, OneSideWithTlsAndOneWithoutDoNotMeet) {
  Credentials with = make_credentials(true), without{.key = with.key};
  for (const auto& [server, client] : {std::pair(with, without), std::pair(without, with)}) {
    auto acceptor = make_acceptor(server);
    auto connector = make_connector(client, acceptor->endpoints(), identity_of(1, 0), 200ms);
    Met met = meet(*acceptor, *connector);
    EXPECT_FALSE(met.caller.ok());
    EXPECT_TRUE(met.accepted.empty());
  }
}

TEST(Connections, AnotherCertificateIsRefusedEvenWithTheRightKey) {
  Credentials ours = make_credentials(true), theirs = make_credentials(true);
  theirs.key = ours.key;
  auto acceptor = make_acceptor(ours);
  TimePoint now = Clock::now();
  auto connector = make_connector(theirs, acceptor->endpoints(), identity_of(1, 0), 200ms, {}, now);
  Met met = meet(*acceptor, *connector, now);
  EXPECT_THAT(text(met.caller), HasSubstr("certificate verify failed"));
  EXPECT_TRUE(met.accepted.empty());
}

TEST(Connections, TlsFromAKeyLetsInNobodyWithAnotherKeyOrWithoutTls) {
  Credentials ours = make_credentials(false), with_certificate = make_credentials(true), plain{.key = ours.key};
  ours.tls = TlsContext::from_key(ours.key).value();
  with_certificate.key = ours.key;
  Credentials another{.key = ours.key, .tls = TlsContext::from_key(Key::random().value()).value()};
  for (const Credentials& theirs : {another, with_certificate, plain}) {
    for (const auto& [server, client] : {std::pair(ours, theirs), std::pair(theirs, ours)}) {
      auto acceptor = make_acceptor(server);
      auto connector = make_connector(client, acceptor->endpoints(), identity_of(1, 0), 200ms);
      Met met = meet(*acceptor, *connector);
      EXPECT_FALSE(met.caller.ok());
      EXPECT_TRUE(met.accepted.empty());
    }
  }
}

TEST(Connections, StrangersAreLoggedOnceInAWhile) {
  Credentials credentials = make_credentials(false);
  auto acceptor = make_acceptor(credentials, 0, {.log_pause = 10s});
  std::vector<Accepted> accepted;
  testing::internal::CaptureStderr();
  TimePoint now = Clock::now();
  for (uint64_t i = 0; i < 6; i++) {
    UniqueFd stranger = connect_raw(*acceptor);
    send_raw(stranger, "GET / HTTP/1.1\r\n\r\n");
    TimePoint then = now + (i == 5 ? 10s : 0s);
    while (acceptor->poll(then, accepted), acceptor->dropped() <= i) ASSERT_TRUE(wait_any({acceptor->descriptor()}));
  }
  std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(log, HasSubstr("dropped a connection from 127.0.0.1:"));
  EXPECT_THAT(log, HasSubstr("it speaks HTTP"));
  EXPECT_THAT(log, HasSubstr("(and 4 others since the last such message)"));
}

TEST(Credentials, ComeFromTheEnvironment) {
  Config config;
  EXPECT_THAT(std::string(credentials_from_config(config).status().message()), HasSubstr("_HOROVOD_SECRET_KEY"));
  config.secret_key = Key::random()->hex();
  auto plain = credentials_from_config(config);
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->tls, nullptr);
  config.tls = true;
  EXPECT_THAT(std::string(credentials_from_config(config).status().message()), HasSubstr("_HOROVOD_TLS_IDENTITY"));
  config.tls_identity = "00ff";
  EXPECT_FALSE(credentials_from_config(config).ok());
  config.tls_identity = *make_tls_identity();
  auto with_tls = credentials_from_config(config);
  ASSERT_TRUE(with_tls.ok()) << with_tls.status().message();
  EXPECT_NE(with_tls->tls, nullptr);
}

}  // namespace
}  // namespace hvd
