// Messages between a launcher and the agent of a host. An agent begins with a hello; the launcher answers with the
// work, and then sends which workers to start and stop, while the agent reports their events. Output is limited by
// credit from the launcher, so that a slow terminal delays the workers' output and nothing else. A message is one frame
// (net/framed.h): a kind and its fields. Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "base/status.h"
#include "base/wire.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

inline constexpr uint64_t kAgentProtocol = 3;
inline constexpr size_t kOutputWindow = 1 << 20;          // bytes in flight of one kind of stream from one host
inline constexpr size_t kLargestAgentMessage = 16 << 20;  // the environment and command of a job are the largest

// agent -> launcher
struct AgentHello {
  uint64_t protocol = kAgentProtocol;
  std::string version, host;  // of horovodrun; the machine's name for itself
  int64_t pid = 0;
  int32_t cores = 1;
};
struct WorkerStarted {
  int32_t worker = 0;
  int64_t pid = 0;
};
struct WorkerNotStarted {
  int32_t worker = 0;
  std::string reason;
};
struct WorkerOutput {
  int32_t worker = 0;
  WorkerStream stream{};
  std::string bytes;
};
struct WorkerOutputEnd {
  int32_t worker = 0;
  WorkerStream stream{};
};
struct WorkerEnded {
  int32_t worker = 0;
  Ended ended;
};
struct AgentNotice {
  std::string text;
};
struct AgentEmpty {};

// launcher -> agent
struct AgentWork {
  Work work;
  double silence = 0;  // seconds without a message from the launcher after which the agent gives up
  double beat = 1;     // longest time in seconds between messages from the agent
};
struct AgentStart {
  Start start;
};
struct AgentStop {
  int32_t worker = -1;  // -1: all
  bool at_once = false;
};
struct AgentRoom {
  WorkerStream stream{};
  uint64_t bytes = 0;
};
struct AgentLeave {};

// both
struct AgentBeat {};  // heartbeat

// agent -> launcher
struct WorkerReport {
  int32_t worker = 0;  // the worker's id
  EndReport report;
};

// launcher -> agent
struct AgentObserve {
  ObserveRequest request;
};
// agent -> launcher: a part of the answer; the last one is marked
struct AgentObserved {
  uint64_t id = 0;
  std::string json;
  bool is_last = true;
};

using AgentMessage = std::variant<AgentHello, WorkerStarted, WorkerNotStarted, WorkerOutput, WorkerOutputEnd,
                                  WorkerEnded, AgentNotice, AgentEmpty, AgentWork, AgentStart, AgentStop, AgentRoom,
                                  AgentLeave, AgentBeat, WorkerReport, AgentObserve, AgentObserved>;

Bytes encode(const AgentMessage& message);
Result<AgentMessage> decode_agent_message(ByteView bytes);

}  // namespace hvd::launcher
