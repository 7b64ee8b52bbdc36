#include "nccl/group.h"

#include <algorithm>

#include "core/counts.h"
#include "core/settings.h"
#include "nccl/progress.h"

namespace standin::nccl {
namespace {

struct Launch {
  Communicator* communicator;
  Stream* stream;
  std::vector<Call> calls;
};

std::vector<Launch> launches_of(const std::vector<QueuedCall>& calls) {
  std::vector<Launch> launches;
  for (const QueuedCall& queued : calls) {
    auto found = std::find_if(launches.begin(), launches.end(), [&](const Launch& launch) {
      return launch.communicator == queued.communicator && launch.stream == queued.stream;
    });
    if (found == launches.end()) {
      launches.push_back({queued.communicator, queued.stream, {}});
      found = std::prev(launches.end());
    }
    found->calls.push_back(queued.call);
  }
  return launches;
}

std::string summary(const Launch& launch) {
  std::string text = "NCCL " + to_text(launch.calls.front());
  if (launch.calls.size() > 1) text += " and " + std::to_string(launch.calls.size() - 1) + " more";
  return text;
}

void launch_now(const std::vector<Launch>& launches, const SitePointer& site) {
  const std::lock_guard lock(core().mutex);
  for (const Launch& one : launches) {
    if (one.communicator->aborted) continue;
    ++one.communicator->pending;
    const TurnPointer turn = take_turn(*one.communicator, summary(one));
    turn->point = launch(
        *one.stream, site, summary(one) + " of " + one.communicator->name(), {},
        [communicator = one.communicator, turn, calls = one.calls](const SitePointer& work) {
          run_launch(*communicator, turn, calls, work);
        },
        true);
  }
}

int launch_calls(const std::vector<QueuedCall>& calls, const char* call) {
  auto launches = launches_of(calls);
  for (size_t i = 0; i < launches.size(); ++i) count(&Counts::nccl_launches);
  std::vector<Communicator*> communicators;
  for (const Launch& one : launches)
    if (std::find(communicators.begin(), communicators.end(), one.communicator) == communicators.end())
      communicators.push_back(one.communicator);
  SitePointer site;
  {
    const Stack stack = here();
    const std::lock_guard lock(core().mutex);
    site = host_site(call, stack);
  }
  std::vector<Stream*> streams;
  for (const Launch& one : launches) streams.push_back(one.stream);
  return make_progress(communicators, site, streams, [launches = std::move(launches), site] {
    launch_now(launches, site);
    return int{kSuccess};
  });
}

// In a benchmark nothing runs and nothing is allocated.
int count_calls(const std::vector<QueuedCall>& calls) {
  int result = kSuccess;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto same = [&](const QueuedCall& other) {
      return other.communicator == calls[i].communicator && other.stream == calls[i].stream;
    };
    if (std::find_if(calls.begin(), calls.end(), same) == calls.begin() + static_cast<ptrdiff_t>(i))
      count(&Counts::nccl_launches);
    if (!calls[i].communicator->blocking) result = kInProgress;
  }
  return result;
}

}  // namespace

Group& group() {
  thread_local Group value;
  return value;
}

int end_group(const char* call) {
  Group& mine = group();
  if (mine.depth > 0) return kSuccess;
  int result = kSuccess;
  const auto keep = [&](int one) {
    result = result == kSuccess || (result == kInProgress && one != kSuccess) ? one : result;
  };
  if (settings().count_only) {
    keep(count_calls(mine.calls));
    mine.calls.clear();
  }
  if (!mine.calls.empty()) keep(launch_calls(std::exchange(mine.calls, {}), call));
  for (const auto& start : std::exchange(mine.starts, {})) keep(start());
  if (!mine.aborts.empty()) {
    SitePointer site;
    {
      const Stack stack = here();
      const std::lock_guard lock(core().mutex);
      site = host_site(call, stack);
    }
    abort_together(std::exchange(mine.aborts, {}), site);
  }
  return result;
}

void abort_together(const std::vector<Communicator*>& communicators, const SitePointer& site) {
  std::unique_lock lock(core().mutex);
  for (Communicator* one : communicators) {
    for (const TurnPointer& turn : others_in_queue(one->context->gpu, communicators))
      violation("ncclCommAbort of " + one->name() + " alone, while " + turn->communicator->name() + " has " +
                turn->what +
                " on the same GPU: its memory is freed, which waits for that kernel. Abort all in one group.\n  " +
                to_text(*site));
  }
  for (Communicator* one : communicators) {
    one->aborted = true;
    for (Stream* stream : std::exchange(one->busy_streams, {})) stream->reserved_for.clear();
  }
  core().changed.notify_all();
  for (Communicator* one : communicators) {
    forget_turns(*one);
    wait_until_idle(*one, lock);
  }
  lock.unlock();
  for (Communicator* one : communicators) end(*one);
}

}  // namespace standin::nccl
