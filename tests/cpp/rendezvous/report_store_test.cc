// Reports of ranks to a launcher that did not start them, over a real store.
#include "rendezvous/report_store.h"

#include <gmock/gmock.h>

#include "rendezvous/store_server.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;

TimePoint soon() { return Clock::now() + 60s; }  // only a hanging test reaches this

class ReportStoreTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    Credentials credentials{.key = store_.key, .tls = nullptr};
    if (GetParam()) {
      store_.tls_identity = make_tls_identity().value();
      credentials.tls = TlsContext::create(store_.tls_identity).value();
    }
    auto listener = listen_on(std::vector{*parse_ip("127.0.0.1")});
    auto server = StoreServer::create(std::move(*listener), credentials);
    ASSERT_TRUE(server.ok());
    server_ = std::move(*server);
    store_.port = server_->port();
  }

  ReportStore store_{.addresses = "127.0.0.1", .port = 0, .key = Key::random().value(), .tls_identity = {}};
  std::unique_ptr<StoreServer> server_;
};

TEST_P(ReportStoreTest, WhatRanksSendIsReadInTheOrderOfTheirEnds) {
  EXPECT_TRUE(read_reports(store_, soon()).value().empty());
  auto told = decode_report_store(encode(store_));
  ASSERT_TRUE(told.ok());
  Origin origin{.kind = OriginKind::exception, .rank = 2, .host = "b", .pid = 7, .type = "ValueError", .text = "bad"};
  EndReport own{.rank = 2, .origin = origin}, lost{.rank = 10, .origin = origin};
  ASSERT_TRUE(send_report(*told, lost, soon()).ok());
  ASSERT_TRUE(send_report(*told, own, soon()).ok());
  EXPECT_EQ(read_reports(store_, soon()).value(), (std::vector{lost, own}));
}

TEST_P(ReportStoreTest, ProcessesWithoutTheKeyAreNotHeard) {
  ReportStore stranger = store_;
  stranger.key = Key::random().value();
  EXPECT_FALSE(send_report(stranger, {.rank = 0, .origin = {.kind = OriginKind::internal, .rank = 0}}, soon()).ok());
  EXPECT_TRUE(read_reports(store_, soon()).value().empty());
}

INSTANTIATE_TEST_SUITE_P(Streams, ReportStoreTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "tls" : "plain"; });

TEST(ReportStoreName, TextThatIsNoneIsRefused) {
  for (const char* text : {"", "a", "a/1", "a/1/zz/", "a/99999/00112233445566778899aabbccddeeff/"})
    EXPECT_FALSE(decode_report_store(text).ok()) << text;
}

TEST(ReportStoreName, EndsThatFollowFromNothingAreNotTold) {
  EXPECT_FALSE(is_worth_telling({.rank = 1, .origin = {.kind = OriginKind::exit, .rank = 1}}));
  EXPECT_TRUE(is_worth_telling({.rank = 0, .origin = {.kind = OriginKind::exit, .rank = 1}}));
  EXPECT_TRUE(is_worth_telling({.rank = 1, .origin = {.kind = OriginKind::exception, .rank = 1}}));
}

}  // namespace
}  // namespace hvd
