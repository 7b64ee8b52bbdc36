#include "launcher/job/worker_lines.h"

#include <string>
#include <utility>

#include "base/bell.h"

namespace hvd::launcher {

Result<std::unique_ptr<WorkerLines>> WorkerLines::create() {
  auto bell = create_bell();
  if (!bell.ok()) return bell.status();
  auto reception = std::make_shared<Reception>();
  reception->bell = std::move(*bell);
  return std::unique_ptr<WorkerLines>(new WorkerLines(std::move(reception)));
}

std::function<void(Accepted)> WorkerLines::door() const {
  return [reception = reception_](Accepted accepted) {
    {
      std::lock_guard lock(reception->mutex);
      reception->waiting.push_back(std::move(accepted));
    }
    ring(reception->bell);
  };
}

// A worker that connects again was cut off at the last moment: it uses the later line.
void WorkerLines::welcome() {
  silence(reception_->bell);
  std::vector<Accepted> waiting;
  {
    std::lock_guard lock(reception_->mutex);
    waiting.swap(reception_->waiting);
  }
  for (Accepted& each : waiting)
    lines_.insert_or_assign(each.identity.from, FramedStream(std::move(each.stream), kElasticFrames));
}

// Reading will report a failure.
void WorkerLines::send(int worker, const ElasticMessage& message) {
  auto line = lines_.find(worker);
  if (line != lines_.end()) (void)line->second.send(encode(message));
}

void WorkerLines::add_to(PollSet& set) {
  set.add(reception_->bell.get(), POLLIN, [] {});
  for (auto& [worker, line] : lines_)
    set.add(line.descriptor(), static_cast<short>(line.has_unsent() ? POLLIN | POLLOUT : POLLIN), [] {});
}

void WorkerLines::look(LineEvents& events) {
  welcome();
  std::vector<std::pair<int, std::string>> lost;
  for (auto& [worker, line] : lines_) {
    Status status = listen_to(worker, line, events);
    if (!status.ok()) lost.emplace_back(worker, status.message());
  }
  for (const auto& [worker, reason] : lost) {
    lines_.erase(worker);
    events.on_line_lost(worker, reason);
  }
}

Status WorkerLines::listen_to(int worker, FramedStream& line, LineEvents& events) {
  if (Status status = line.flush(); !status.ok()) return status;
  for (;;) {
    auto bytes = line.receive();
    if (!bytes.ok()) return bytes.status();
    if (!*bytes) return {};
    auto message = decode_elastic_message(**bytes);
    if (!message.ok()) return message.status();
    if (const auto* ready = std::get_if<WorkerReady>(&*message)) {
      events.on_ready(worker, *ready);
    } else if (const auto* leaves = std::get_if<WorkerLeaves>(&*message)) {
      events.on_leaving(worker, *leaves);
    }
  }
}

}  // namespace hvd::launcher
