// A worker of an elastic job and its launcher, over real connections to the store's port.
#include "rendezvous/membership.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <condition_variable>
#include <thread>

#include "base/bell.h"
#include "rendezvous/host_meeting.h"
#include "rendezvous/parcel.h"
#include "rendezvous/store_server.h"
#include "transport/shared_memory.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr int32_t kWorker = 7;

TimePoint soon() { return Clock::now() + 60s; }  // only a hanging test reaches this
std::string text(const Status& status) { return std::string(status.message()); }

Place place_in(uint64_t generation, int32_t rank = 1, int32_t size = 3) {
  return {.generation = Generation{generation}, .rank = rank, .size = size, .local_rank = 0, .local_size = 2};
}

// The launcher's side of one line.
class Line {
 public:
  explicit Line(Accepted accepted)
      : frames_(std::move(accepted.stream), kElasticFrames), from(accepted.identity.from) {}

  void say(const ElasticMessage& message) {
    ASSERT_TRUE(frames_.send(encode(message)).ok());
    while (frames_.has_unsent()) ASSERT_TRUE(frames_.flush().ok());
  }
  void say_raw(ByteView bytes) { ASSERT_TRUE(frames_.send(bytes).ok()); }
  template <class Message>
  Message hear() {
    for (;;) {
      auto bytes = frames_.receive();
      EXPECT_TRUE(bytes.ok()) << text(bytes.status());
      if (!bytes.ok()) return {};
      if (*bytes) {
        auto message = decode_elastic_message(**bytes);
        EXPECT_TRUE(message.ok()) << text(message.status());
        EXPECT_TRUE(std::holds_alternative<Message>(*message));
        return std::get<Message>(*message);
      }
      pollfd wanted{.fd = frames_.descriptor(), .events = POLLIN, .revents = 0};
      ::poll(&wanted, 1, -1);
    }
  }

 private:
  FramedStream frames_;

 public:
  int32_t from;
};

class MembershipTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) credentials_.tls = TlsContext::create(*make_tls_identity()).value();
    auto listener = listen_on(std::vector{*parse_ip("127.0.0.1")});
    auto server = StoreServer::create(std::move(*listener), credentials_, {}, {}, [this](Accepted accepted) {
      std::lock_guard lock(mutex_);
      line_ = std::make_unique<Line>(std::move(accepted));
      arrived_.notify_all();
    });
    ASSERT_TRUE(server.ok()) << text(server.status());
    server_ = std::move(*server);
    auto joined = Membership::join(server_->endpoints(), credentials_, kWorker, soon());
    ASSERT_TRUE(joined.ok()) << text(joined.status());
    member_ = std::move(*joined);
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return line_ != nullptr; });
  }

  // The result of next_place(), called by a separate thread.
  std::jthread ask(std::optional<Result<Place>>& answer, TimePoint deadline = soon()) {
    return std::jthread([this, &answer, deadline] { answer.emplace(member_->next_place("because", 2, deadline)); });
  }

  Credentials credentials_{.key = Key::random().value()};
  std::unique_ptr<StoreServer> server_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::unique_ptr<Line> line_;
  std::unique_ptr<Membership> member_;
};

TEST_P(MembershipTest, ReadinessIsAnsweredWithAPlace) {
  EXPECT_EQ(line_->from, kWorker);
  std::optional<Result<Place>> answer;
  {
    auto asking = ask(answer);
    WorkerReady ready = line_->hear<WorkerReady>();
    EXPECT_EQ(ready.last, Generation{0});
    EXPECT_EQ(ready.reason, "because");
    EXPECT_EQ(ready.lost_rank, 2);
    line_->say(place_in(4));
  }
  ASSERT_TRUE(answer->ok()) << text(answer->status());
  EXPECT_EQ((*answer)->rank, 1);
  EXPECT_EQ((*answer)->local_size, 2);
  auto asking = ask(answer);
  EXPECT_EQ(line_->hear<WorkerReady>().last, Generation{4});
  line_->say(place_in(5));
}

TEST_P(MembershipTest, AWorldThatIsVoidBeforeItWasTakenIsNotHandedOut) {
  std::optional<Result<Place>> answer;
  {
    auto asking = ask(answer);
    line_->hear<WorkerReady>();
    line_->say(WorldVoid{.generation = Generation{3}, .reason = "an old one"});  // nothing to do with this
    line_->say(place_in(4));
  }
  ASSERT_TRUE(answer->ok());
  EXPECT_FALSE(is_readable(member_->voided()));
  line_->say(WorldVoid{.generation = Generation{4}, .reason = "rank 2 is gone"});
  UniqueFd watched(::dup(member_->voided()));
  ASSERT_TRUE(wait_readable(watched, soon()));
  EXPECT_EQ(member_->void_reason(), "rank 2 is gone");
  auto asking = ask(answer);  // which forgets it
  line_->hear<WorkerReady>();
  EXPECT_FALSE(is_readable(member_->voided()));
  line_->say(place_in(6));
}

TEST_P(MembershipTest, WithoutAPlaceItIsRemovedForGood) {
  std::optional<Result<Place>> answer;
  {
    auto asking = ask(answer);
    line_->hear<WorkerReady>();
    line_->say(Dismissal{"its host is not listed any more"});
  }
  EXPECT_EQ(answer->status().code(), Code::removed);
  EXPECT_EQ(text(answer->status()), "its host is not listed any more");
  EXPECT_EQ(member_->next_place("again", -1, soon()).status().code(), Code::removed);
}

TEST_P(MembershipTest, NoAnswerInTimeIsAnError) {
  EXPECT_EQ(member_->next_place("", -1, Clock::now()).status().code(), Code::timed_out);
}

TEST_P(MembershipTest, ChangesOfTheHostsComeInOrder) {
  EXPECT_EQ(member_->next_change(Clock::now()).status().code(), Code::timed_out);
  line_->say(HostsChanged{.change = HostsChanged::Change::added, .timestamp = 1.5});
  line_->say(HostsChanged{.change = HostsChanged::Change::mixed, .timestamp = 2.5});
  auto first = member_->next_change(soon()), second = member_->next_change(soon());
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->timestamp, 1.5);
  EXPECT_EQ(second->change, HostsChanged::Change::mixed);
}

TEST_P(MembershipTest, WhoWaitsForChangesCanBeWoken) {
  std::jthread waking([&] { member_->stop_waiting(); });
  EXPECT_EQ(member_->next_change(kNever).status().code(), Code::aborted);
}

TEST_P(MembershipTest, TheLauncherHearsWhoLeaves) {
  ASSERT_TRUE(member_->leave("pre-empted").ok());
  EXPECT_EQ(line_->hear<WorkerLeaves>().reason, "pre-empted");
}

TEST_P(MembershipTest, WithoutLauncherTheJobIsOverForAllThatWait) {
  std::optional<Result<Place>> answer;
  {
    auto asking = ask(answer);
    line_->hear<WorkerReady>();
    line_.reset();
    EXPECT_EQ(member_->next_change(kNever).status().code(), Code::aborted);
  }
  EXPECT_EQ(answer->status().code(), Code::peer_lost);
  EXPECT_THAT(text(answer->status()), HasSubstr("the launcher is gone"));
  EXPECT_TRUE(is_readable(member_->voided()));
  EXPECT_FALSE(member_->leave("late").ok());
}

TEST_P(MembershipTest, AFailedJobSaysWhy) {
  std::optional<Result<Place>> answer;
  {
    auto asking = ask(answer);
    line_->hear<WorkerReady>();
    line_->say(JobOver{"too few slots"});
  }
  EXPECT_EQ(answer->status().code(), Code::aborted);
  EXPECT_THAT(text(answer->status()), HasSubstr("too few slots"));
}

TEST_P(MembershipTest, NonsenseEndsTheLine) {
  line_->say_raw(std::as_bytes(std::span("what", 4)));
  EXPECT_EQ(member_->next_change(kNever).status().code(), Code::aborted);
}

INSTANTIATE_TEST_SUITE_P(Lines, MembershipTest, testing::Bool(),
                         [](const auto& each) { return std::string(each.param ? "Tls" : "Plain"); });

TEST(ElasticMessages, EveryKindArrivesAsItWasSent) {
  for (const ElasticMessage& message : {
           ElasticMessage(WorkerReady{.last = Generation{3}, .reason = "why", .lost_rank = 2}),
           ElasticMessage(WorkerLeaves{"gone soon"}),
           ElasticMessage(place_in(9)),
           ElasticMessage(WorldVoid{.generation = Generation{9}, .reason = "r"}),
           ElasticMessage(Dismissal{"no"}),
           ElasticMessage(JobOver{"yes"}),
           ElasticMessage(HostsChanged{.change = HostsChanged::Change::added, .timestamp = 3.25}),
       }) {
    Bytes bytes = encode(message);
    auto back = decode_elastic_message(bytes);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(encode(*back), bytes);
    for (size_t length = 0; length < bytes.size(); length++)
      EXPECT_FALSE(decode_elastic_message(ByteView(bytes).first(length)).ok()) << "cut after " << length;
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode_elastic_message(bytes).ok());
  }
}

TEST(ElasticMessages, PlacesThatCannotBeAreRefused) {
  EXPECT_FALSE(decode_elastic_message(encode(place_in(1, 3, 3))).ok());
  EXPECT_FALSE(decode_elastic_message(encode(place_in(1, -1, 3))).ok());
  EXPECT_FALSE(decode_elastic_message(encode(place_in(1, 0, 0))).ok());
  EXPECT_FALSE(decode_elastic_message(encode(HostsChanged{.change = HostsChanged::Change{0}, .timestamp = 1})).ok());
}

TEST(ElasticMessages, LongReasonsAreCutOff) {
  Bytes bytes = encode(Dismissal{std::string(1 << 20, 'x')});
  EXPECT_LE(bytes.size(), kLargestElasticMessage);
  EXPECT_EQ(std::get<Dismissal>(*decode_elastic_message(bytes)).reason.size(), kLongestElasticReason);
}

// Neither the leader, which waits for another rank, nor a rank that looks for the leader stays longer.
TEST(InterruptedMeeting, EndsAtOnce) {
  for (int32_t rank : {0, 1}) {
    UniqueFd bell = std::move(*create_bell()), memory;
    if (rank == 0) memory = std::move(*create_shared_memory(4096));
    World world{.rank = rank, .size = 2, .local_rank = rank, .local_size = 2, .host = "here"};
    world.job = "interrupted" + std::to_string(::getpid());
    std::jthread interrupting([&] { ring(bell); });
    auto met = meet_on_host(world, {}, std::move(memory), {}, Clock::now() + 1h, bell.get());
    EXPECT_EQ(met.status().code(), Code::aborted);
  }
}

}  // namespace
}  // namespace hvd
