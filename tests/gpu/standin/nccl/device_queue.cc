#include "nccl/device_queue.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <sstream>

#include "core/settings.h"

namespace standin::nccl {
namespace {

std::deque<TurnPointer>& queue_of(int gpu) {
  static auto& queues = *new std::map<int, std::deque<TurnPointer>>;
  return queues[gpu];
}

constexpr int kMostHops = 32;

// "<process> <launch> <hops>\n<path>": the launch of the process that sent it first, and the way so far.
struct Probe {
  std::string process;
  uint64_t launch = 0;
  int hops = 0;
  std::string path;
};

std::string process_name() {
  char host[64] = {};
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + "/" + std::to_string(::getpid());
}

std::string written(const Probe& probe) {
  return probe.process + " " + std::to_string(probe.launch) + " " + std::to_string(probe.hops) + "\n" + probe.path;
}

Probe read(const std::string& text) {
  Probe probe;
  std::istringstream head(text.substr(0, text.find('\n')));
  head >> probe.process >> probe.launch >> probe.hops;
  probe.path = text.substr(std::min(text.size(), text.find('\n') + 1));
  return probe;
}

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string where(const Turn& turn) {
  return process_name() + " runs " + turn.what + " of " + turn.communicator->name();
}

// Sends the probe on to the peers that this launch waits for. Without the mutex.
void forward(const Turn& turn, const std::vector<int>& awaits, Probe probe) {
  if (++probe.hops > kMostHops) return;
  probe.path += "  " + where(turn) + ", which waits for its ranks " + list(awaits) + "\n";
  for (int peer : awaits) send_notice(*turn.communicator, peer, written(probe));
}

}  // namespace

TurnPointer take_turn(Communicator& communicator, std::string what) {
  static uint64_t count = 0;
  auto turn = std::make_shared<Turn>();
  turn->number = ++count;
  turn->communicator = &communicator;
  turn->what = std::move(what);
  queue_of(communicator.context->gpu).push_back(turn);
  return turn;
}

bool wait_for_turn(const TurnPointer& turn, std::unique_lock<std::mutex>& lock) {
  auto& queue = queue_of(turn->communicator->context->gpu);
  core().changed.wait(lock, [&] {
    if (turn->communicator->aborted) return true;
    if (queue.front() == turn) return true;
    if (queue.front()->point.stream) demand(queue.front()->point);
    return false;
  });
  return !turn->communicator->aborted;
}

void end_turn(const TurnPointer& turn) {
  std::erase(queue_of(turn->communicator->context->gpu), turn);
  core().changed.notify_all();
}

void forget_turns(const Communicator& communicator) {
  std::erase_if(queue_of(communicator.context->gpu),
                [&](const TurnPointer& turn) { return turn->communicator == &communicator; });
  core().changed.notify_all();
}

std::vector<TurnPointer> others_in_queue(int gpu, const std::vector<Communicator*>& except) {
  std::vector<TurnPointer> others;
  for (const TurnPointer& turn : queue_of(gpu))
    if (std::find(except.begin(), except.end(), turn->communicator) == except.end()) others.push_back(turn);
  return others;
}

void send_probes(const TurnPointer& turn, const std::vector<int>& awaits) {
  {
    const std::lock_guard lock(core().mutex);
    turn->awaits = awaits;
  }
  forward(*turn, awaits, {.process = process_name(), .launch = turn->number, .hops = 0, .path = ""});
}

void on_notice(Communicator& communicator, const std::string& text) {
  Probe probe = read(text);
  TurnPointer running;
  std::vector<int> awaits;
  {
    const std::lock_guard lock(core().mutex);
    const auto& queue = queue_of(communicator.context->gpu);
    const auto mine = std::find_if(queue.begin(), queue.end(),
                                   [&](const TurnPointer& turn) { return turn->communicator == &communicator; });
    if (mine == queue.end()) return;  // not launched yet, or gone
    running = queue.front();
    awaits = running->awaits;
    if (*mine != running)
      probe.path +=
          "  " + process_name() + " has " + (*mine)->what + " of " + communicator.name() + " queued behind that:\n";
    if (probe.process == process_name() && probe.launch == running->number && *mine != running)
      return violation("NCCL launches wait for each other in a cycle, because ranks launched in different orders:\n" +
                       probe.path + "  " + where(*running) + "\n");
  }
  if (!awaits.empty()) forward(*running, awaits, std::move(probe));
}

}  // namespace standin::nccl
