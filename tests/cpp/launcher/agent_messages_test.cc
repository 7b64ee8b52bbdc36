#include "launcher/agents/agent_messages.h"

#include <gtest/gtest.h>

#include <random>

namespace hvd::launcher {
namespace {

std::vector<AgentMessage> examples() {
  Work work{.command = {"python", "", "a b\n'\""},
            .directory = "/d",
            .variables = {{"A", "1=2"}, {"EMPTY", ""}},
            .defaults = {{"OMP_NUM_THREADS", "3"}},
            .bind_to = "core"};
  return {AgentHello{.version = "1.0", .host = "b", .pid = 4711, .cores = 8},
          WorkerStarted{.worker = 3, .pid = 12},
          WorkerNotStarted{.worker = 3, .reason = "no such file"},
          WorkerOutput{.worker = 1, .stream = WorkerStream::err, .bytes = std::string("a\0\xff", 3)},
          WorkerOutputEnd{.worker = 1, .stream = WorkerStream::out},
          WorkerEnded{.worker = 2, .ended = {.ending = {.signalled = true, .number = 9}, .out_of_memory = true}},
          AgentNotice{"text"},
          AgentEmpty{},
          AgentWork{.work = work, .silence = 2.5},
          AgentStart{{.worker = 7, .local_rank = 1, .local_size = 2, .variables = {{"HOROVOD_RANK", "7"}}}},
          AgentStop{.worker = -1, .at_once = true},
          AgentRoom{.stream = WorkerStream::err, .bytes = 1 << 20},
          AgentLeave{},
          AgentBeat{},
          WorkerReport{.worker = 4,
                       .report = {.rank = 2, .origin = {.kind = OriginKind::exception, .rank = 1, .type = "E"}}},
          AgentObserve{{.id = 5, .worker = 2, .stacks = true, .operations = 100}},
          AgentObserved{.id = 5, .json = "[{}]", .is_last = false}};
}

TEST(AgentMessages, EveryKindArrivesAsItWasSent) {
  ASSERT_EQ(examples().size(), std::variant_size_v<AgentMessage>);
  for (const AgentMessage& message : examples()) {
    auto read = decode_agent_message(encode(message));
    ASSERT_TRUE(read.ok()) << message.index();
    EXPECT_EQ(read->index(), message.index());
    EXPECT_EQ(encode(*read), encode(message));
  }
  auto read = decode_agent_message(encode(examples()[8]));
  const auto& work = std::get<AgentWork>(*read);
  EXPECT_EQ(work.work.command[2], "a b\n'\"");
  EXPECT_EQ(work.work.variables[0], (std::pair<std::string, std::string>("A", "1=2")));
  EXPECT_EQ(work.silence, 2.5);
}

TEST(AgentMessages, CutOffExtendedOrChangedOnesAreRefusedOrReadButNeverTrusted) {
  std::mt19937 random(1);
  for (const AgentMessage& message : examples()) {
    Bytes bytes = encode(message);
    for (size_t length = 0; length < bytes.size(); length++)
      EXPECT_FALSE(decode_agent_message(ByteView(bytes).first(length)).ok()) << message.index() << " " << length;
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_agent_message(longer).ok()) << message.index();
    for (int i = 0; i < 1000; i++) {
      Bytes changed = bytes;
      changed[random() % changed.size()] = static_cast<std::byte>(random());
      (void)decode_agent_message(changed);  // the sanitizers look on
    }
  }
  EXPECT_FALSE(decode_agent_message({}).ok());
}

TEST(AgentMessages, AListThatPromisesMoreThanThereIsTakesNoMemory) {
  Bytes bytes{std::byte{8}};  // AgentWork
  for (int i = 0; i < 9; i++) bytes.push_back(std::byte{0xff});
  bytes.push_back(std::byte{1});
  EXPECT_FALSE(decode_agent_message(bytes).ok());
}

}  // namespace
}  // namespace hvd::launcher
