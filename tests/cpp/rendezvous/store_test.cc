// The store with real connections: many clients, strangers, and ends of either side.
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "rendezvous/store_client.h"
#include "rendezvous/store_server.h"
#include "rendezvous/store_table.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

ByteView view(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
std::string text(const Status& status) { return std::string(status.message()); }
TimePoint soon() { return Clock::now() + 60s; }  // only a hanging test reaches this
TimePoint passed() { return Clock::now(); }

size_t count_descriptors() {
  std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class StoreTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) credentials_.tls = TlsContext::create(*make_tls_identity()).value();
    start();
  }
  void start(StoreLimits limits = {}) {
    auto listener = listen_on(std::vector{*parse_ip("127.0.0.1")});
    auto server = StoreServer::create(std::move(*listener), credentials_, limits);
    ASSERT_TRUE(server.ok()) << text(server.status());
    server_ = std::move(*server);
  }
  std::unique_ptr<StoreClient> client(int32_t rank = 0, StoreLimits limits = {}) {
    auto made = StoreClient::connect(server_->endpoints(), credentials_, rank, soon(), limits);
    EXPECT_TRUE(made.ok()) << text(made.status());
    return std::move(*made);
  }
  UniqueFd connect_raw() {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    RawAddress raw = raw_of(server_->endpoints()[0].address);
    EXPECT_EQ(::connect(socket.get(), raw.get(), raw.length), 0);
    return socket;
  }

  Credentials credentials_{.key = Key::random().value()};
  std::unique_ptr<StoreServer> server_;
};

TEST_P(StoreTest, WhatOneSetsTheOtherGets) {
  auto a = client(0), b = client(1);
  ASSERT_TRUE(a->set("x", view("one"), soon()).ok());
  EXPECT_EQ(text(b->get("x", soon()).value()), "one");
  ASSERT_TRUE(b->set("x", view(""), soon()).ok());
  EXPECT_EQ(text(a->get("x", soon()).value()), "");
}

TEST_P(StoreTest, AGetWaitsForTheValue) {
  auto a = client(0), b = client(1);
  std::atomic<bool> got = false;
  std::jthread waiter([&] {
    EXPECT_EQ(text(b->get("later", soon()).value()), "here");
    got = true;
  });
  ASSERT_TRUE(a->set("other", view("x"), soon()).ok());
  EXPECT_FALSE(got);
  ASSERT_TRUE(a->set("later", view("here"), soon()).ok());
}

TEST_P(StoreTest, ADeadlineEndsTheWaitAndTheClientGoesOn) {
  auto a = client();
  auto none = a->get("never", passed());
  EXPECT_EQ(none.status().code(), Code::timed_out);
  EXPECT_THAT(text(none.status()), HasSubstr("'never'"));
  // Answers to abandoned requests must not be taken for answers to later ones.
  ASSERT_TRUE(a->set("never", view("1"), soon()).ok());
  ASSERT_TRUE(a->set("x", view("2"), soon()).ok());
  EXPECT_EQ(text(a->get("x", soon()).value()), "2");
}

TEST_P(StoreTest, GatherWaitsForAllAndGivesThemInOrder) {
  auto a = client(0), b = client(1);
  std::jthread waiter([&] {
    auto all = b->gather("1/address/", 3, soon());
    ASSERT_TRUE(all.ok()) << text(all.status());
    ASSERT_EQ(all->size(), 3u);
    EXPECT_EQ((*all)[0].first, "1/address/a");
    EXPECT_EQ(text((*all)[2].second), "c");
  });
  for (const char* key : {"1/address/c", "0/address/x", "1/address/a", "1/address/a", "1/address/b"}) {
    ASSERT_TRUE(a->set(key, view(key + 10), soon()).ok());
  }
}

TEST_P(StoreTest, APastGenerationIsRemovedByItsPrefix) {
  auto a = client();
  for (const char* key : {"1/x", "1/y", "2/x"}) ASSERT_TRUE(a->set(key, view("v"), soon()).ok());
  ASSERT_TRUE(a->remove("1/", soon()).ok());
  EXPECT_EQ(a->get("1/x", passed()).status().code(), Code::timed_out);
  EXPECT_EQ(a->gather("", 0, soon())->size(), 1u);
}

TEST_P(StoreTest, WhatIsTooLargeIsRefusedByClientAndServer) {
  start({.key = 10, .value = 100, .entries = 3, .bytes = 250});
  auto strict = client(0, {.key = 10, .value = 100}), careless = client(1, {.key = 50, .value = 120});
  std::string large(101, 'v'), key(11, 'k');
  for (StoreClient* each : {strict.get(), careless.get()}) {
    EXPECT_EQ(each->set("x", view(large), soon()).code(), Code::invalid_argument);
    EXPECT_EQ(each->set(key, view("v"), soon()).code(), Code::invalid_argument);
  }
  EXPECT_TRUE(careless->set("a", view(large.substr(1)), soon()).ok());
  EXPECT_TRUE(careless->set("b", view(large.substr(1)), soon()).ok());
  EXPECT_THAT(text(careless->set("c", view(large.substr(1)), soon())), HasSubstr("the store is full"));
  EXPECT_TRUE(careless->set("c", view("1"), soon()).ok());
  EXPECT_THAT(text(careless->set("d", view("1"), soon())), HasSubstr("the store is full"));
  EXPECT_TRUE(careless->set("c", view("2"), soon()).ok());
}

TEST_P(StoreTest, AMessageLargerThanAnyRequestEndsTheConnection) {
  start({.key = 10, .value = 100});
  auto greedy = client(0, {.key = 10, .value = 1 << 20}), other = client(1);
  std::string large(1000, 'v');
  EXPECT_EQ(greedy->set("x", view(large), soon()).code(), Code::peer_lost);
  EXPECT_TRUE(other->set("x", view("v"), soon()).ok());
}

TEST_P(StoreTest, ManyClientsFindEachOther) {
  constexpr int kClients = 256;
  size_t before = count_descriptors();
  {
    std::vector<std::jthread> threads;
    std::atomic<int> done = 0;
    for (int thread = 0; thread < 8; thread++) {
      threads.emplace_back([&, thread] {
        std::vector<std::unique_ptr<StoreClient>> mine;
        for (int i = thread; i < kClients; i += 8) {
          mine.push_back(client(i));
          ASSERT_TRUE(mine.back()->set("rank/" + std::to_string(i), view(std::to_string(i)), soon()).ok());
        }
        for (auto& each : mine) {
          auto all = each->gather("rank/", kClients, soon());
          ASSERT_TRUE(all.ok()) << text(all.status());
          EXPECT_EQ(all->size(), static_cast<size_t>(kClients));
        }
        done += static_cast<int>(mine.size());
      });
    }
    threads.clear();
    EXPECT_EQ(done, kClients);
  }
  server_ = nullptr;
  EXPECT_LT(count_descriptors(), before);
}

TEST_P(StoreTest, AnotherKeyIsRefusedAtOnce) {
  Credentials wrong{.key = Key::random().value(), .tls = credentials_.tls};
  auto refused = StoreClient::connect(server_->endpoints(), wrong, 0, soon());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::precondition);
  EXPECT_THAT(text(refused.status()), HasSubstr("the job's store"));
  EXPECT_THAT(text(refused.status()), HasSubstr("another key"));
}

TEST_P(StoreTest, AServerThatIsNotThereIsToldWithItsAddresses) {
  std::vector<Endpoint> endpoints = server_->endpoints();
  server_ = nullptr;
  auto none = StoreClient::connect(endpoints, credentials_, 0, Clock::now() + 2s);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(text(none.status()), HasSubstr(to_text(endpoints[0]) + ": connection refused"));
}

TEST_P(StoreTest, AServerThatGoesAwayEndsEveryWait) {
  auto a = client(), waiting = client(1);
  std::jthread waiter([&] {
    auto lost = waiting->get("never", soon());
    EXPECT_EQ(lost.status().code(), Code::peer_lost);
    EXPECT_EQ(waiting->set("x", {}, soon()).code(), Code::peer_lost);
  });
  ASSERT_TRUE(a->set("x", view("v"), soon()).ok());
  server_ = nullptr;
  EXPECT_EQ(a->get("x", soon()).status().code(), Code::peer_lost);
}

TEST_P(StoreTest, NobodyWritesOrReadsWithoutTheKey) {
  // What was possible with servers that answer anyone: a value put by HTTP, a pickle sent to the port, and a bare
  // request of the store's own protocol.
  auto a = client();
  ASSERT_TRUE(a->set("rank_0", view("mine"), soon()).ok());
  Bytes bare = encode(StoreRequest{.id = 1, .verb = StoreVerb::set, .key = "rank_0", .value = view("theirs")});
  std::string framed(1, static_cast<char>(bare.size()));
  framed += std::string(3, '\0') + text(bare);
  for (const std::string& attack :
       {std::string("PUT /global/rank_0 HTTP/1.1\r\nContent-Length: 6\r\n\r\ntheirs"),
        std::string("GET /global/rank_0 HTTP/1.1\r\n\r\n"), std::string("DELETE /global HTTP/1.1\r\n\r\n"),
        "\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."s, framed}) {
    UniqueFd stranger = connect_raw();
    ASSERT_EQ(::send(stranger.get(), attack.data(), attack.size(), MSG_NOSIGNAL), static_cast<ssize_t>(attack.size()));
    ::shutdown(stranger.get(), SHUT_WR);
    std::string answer;
    char buffer[256];
    for (ssize_t count; (count = ::recv(stranger.get(), buffer, sizeof buffer, 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
    EXPECT_THAT(answer, testing::Not(HasSubstr("mine")));
    EXPECT_TRUE(GetParam() || answer.empty()) << answer;
  }
  EXPECT_EQ(text(a->get("rank_0", soon()).value()), "mine");
}

TEST_P(StoreTest, ClientsThatEndInTheMiddleLeaveNothingBehind) {
  auto a = client();
  ASSERT_TRUE(a->set("x", view("v"), soon()).ok());
  size_t before = count_descriptors();
  for (int i = 0; i < 50; i++) EXPECT_EQ(client(i)->get("never", passed()).status().code(), Code::timed_out);
  // The server sees the ends in its own time; every answer to `a` comes from it.
  while (count_descriptors() > before) ASSERT_TRUE(a->get("x", soon()).ok());
}

INSTANTIATE_TEST_SUITE_P(All, StoreTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "tls" : "plain"; });

TEST(StoreTable, AnswersOnlyTheLatestRequestOfAClient) {
  StoreTable table({});
  std::vector<StoreTable::Answer> answers;
  table.handle(1, {.id = 1, .verb = StoreVerb::get, .key = "a"}, answers);
  table.handle(1, {.id = 2, .verb = StoreVerb::get, .key = "b"}, answers);
  EXPECT_TRUE(answers.empty());
  table.handle(2, {.id = 7, .verb = StoreVerb::set, .key = "a"}, answers);
  table.handle(2, {.id = 8, .verb = StoreVerb::set, .key = "b"}, answers);
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[1].client, 1u);
  EXPECT_EQ(decode_reply(answers[1].reply)->id, 2u);
}

TEST(StoreTable, RemovedKeysAreMissedAgain) {
  StoreTable table({});
  std::vector<StoreTable::Answer> answers;
  table.handle(2, {.id = 1, .verb = StoreVerb::set, .key = "p/1"}, answers);
  table.handle(1, {.id = 1, .verb = StoreVerb::gather, .key = "p/", .count = 2}, answers);
  table.handle(2, {.id = 2, .verb = StoreVerb::remove, .key = "p/"}, answers);
  table.handle(2, {.id = 3, .verb = StoreVerb::set, .key = "p/2"}, answers);
  EXPECT_EQ(answers.size(), 3u);  // those of client 2
  EXPECT_EQ(table.bytes(), 3u);
  table.handle(2, {.id = 4, .verb = StoreVerb::set, .key = "p/3"}, answers);
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(answers[3].client, 1u);
}

TEST(StoreMessages, CutShortTheyAreRefused) {
  Bytes request = encode(StoreRequest{.id = 300, .verb = StoreVerb::set, .key = "k", .value = view("value")});
  Bytes reply = encode(StoreReply{.id = 300, .entries = {{"k", Bytes(3)}, {"l", Bytes()}}});
  for (size_t i = 0; i < request.size(); i++) EXPECT_FALSE(decode_request(ByteView(request).first(i)).ok());
  for (size_t i = 0; i < reply.size(); i++) EXPECT_FALSE(decode_reply(ByteView(reply).first(i)).ok());
  EXPECT_EQ(decode_request(request)->key, "k");
  EXPECT_EQ(decode_reply(reply)->entries.size(), 2u);
}

TEST(StoreMessages, EveryCodeArrives) {
  for (int32_t code = 0; code <= static_cast<int32_t>(kLastCode); code++) {
    auto reply = decode_reply(encode(StoreReply{.id = 1, .code = static_cast<Code>(code)}));
    ASSERT_TRUE(reply.ok()) << code;
    EXPECT_EQ(reply->code, static_cast<Code>(code));
  }
}

}  // namespace
}  // namespace hvd
