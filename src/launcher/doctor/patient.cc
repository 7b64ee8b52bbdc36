#include "launcher/doctor/patient.h"

#include <fmt/core.h>

namespace hvd::launcher {
namespace {

constexpr size_t kLongestFacts = 16 << 20;

}  // namespace

void Patient::on_not_started(int, std::string_view reason) { end(fmt::format("it could not be started: {}", reason)); }

void Patient::on_output(int, WorkerStream stream, std::string_view bytes) {
  if (stream == WorkerStream::err) return said_.feed(bytes);
  partial_ += bytes;
  for (size_t end = partial_.find('\n'); end != std::string::npos; end = partial_.find('\n')) {
    take_line(std::string_view(partial_).substr(0, end));
    partial_.erase(0, end + 1);
  }
  if (partial_.size() > kLongestFacts) partial_.clear();
}

// The last valid line counts; other output of a library is ignored.
void Patient::take_line(std::string_view line) {
  if (auto facts = facts_from(line); facts.ok()) exam_.facts = std::move(*facts);
}

void Patient::on_ended(int, const Ended& ended) {
  if (is_over_ || ended.ending.code() == 0) return end("");
  std::string reason = fmt::format("it ended with {}", describe(ended.ending));
  if (auto lines = said_.last_lines(1); !lines.empty()) reason += fmt::format("; it said: {}", lines.front());
  end(reason);
}

void Patient::on_lost(std::string_view reason, bool) {
  if (!is_empty_) end(fmt::format("the host was lost: {}", reason));
  is_empty_ = true;
}

void Patient::give_up(std::string_view reason) {
  if (!is_over_) end(std::string(reason));
}

void Patient::end(std::string reason) {
  if (!is_over_) exam_.probe_error = std::move(reason);
  is_over_ = true;
}

}  // namespace hvd::launcher
