// What others see of a crew: metrics for a scraper, and answers to HostRunner::observe().
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/host_name.h"
#include "base/number.h"
#include "launcher/workers/crew.h"
#include "launcher/workers/environment.h"
#include "observe/open_metrics.h"

namespace hvd::launcher {
namespace {

constexpr size_t kRemembered = 2000;
constexpr size_t kMostPending = 64;
constexpr int64_t kMostSteps = 50;
constexpr double kNanosecond = 1e-9;

std::string setting(const Work& work, std::string_view name) {
  const char* inherited = find_variable(environ, name);
  std::string value = inherited == nullptr ? "" : inherited;
  for (const auto& [key, given] : work.variables)
    if (key == name) value = given;
  return value;
}

using Operations = std::vector<observe::Remembered>;

// Operations that are not done, oldest first.
nlohmann::json pending_of(const WorkerView& view, const Operations& operations) {
  nlohmann::json pending = nlohmann::json::array();
  for (const observe::Remembered& one : operations)
    if (one.facts.outcome == observe::Outcome::pending && pending.size() < kMostPending)
      pending.push_back(view.shown(one));
  return pending;
}

// A step is from one operation to the next one of the same name, on average; null: no name has come again.
nlohmann::json step_of(const Operations& operations) {
  if (operations.empty()) return nullptr;
  int64_t first = 0, last = 0, count = 0;
  for (auto one = operations.rbegin(); one != operations.rend() && count < kMostSteps; ++one) {
    if (one->name != operations.back().name) continue;
    first = one->submitted;
    if (count++ == 0) last = first;
  }
  if (count < 2) return nullptr;
  return static_cast<double>(last - first) * kNanosecond / static_cast<double>(count - 1);
}

nlohmann::json newest(const WorkerView& view, const Operations& operations, size_t most) {
  nlohmann::json shown = nlohmann::json::array();
  for (size_t i = operations.size() - std::min(most, operations.size()); i < operations.size(); i++)
    shown.push_back(view.shown(operations[i]));
  return shown;
}

}  // namespace

void Crew::serve_metrics() {
  std::string port = setting(work_, "HOROVOD_METRICS_PORT");
  if (port.empty()) return;
  std::string address = setting(work_, "HOROVOD_OBSERVE_ADDRESS");
  metrics_token_ = setting(work_, "HOROVOD_METRICS_TOKEN");
  auto number = read_number<uint16_t>(port);
  if (!number) return events_.on_notice(fmt::format("HOROVOD_METRICS_PORT={} is no port; there are no metrics", port));
  auto server = HttpServer::listen(address.empty() ? "127.0.0.1" : address, *number,
                                   [this](const HttpRequest& request, uint64_t) { return on_request(request); });
  if (!server.ok()) return events_.on_notice(fmt::format("there will be no metrics: {}", server.status().message()));
  metrics_.emplace(std::move(*server));
  events_.on_notice(fmt::format("metrics are at port {}, /metrics", metrics_->port()));
}

HttpReply Crew::on_request(const HttpRequest& request) const {
  if (!metrics_token_.empty() && !equal_tokens(request.token, metrics_token_))
    return {.status = 401, .body = "the token of HOROVOD_METRICS_TOKEN is needed\n"};
  if (request.path != "/metrics") return {.status = 404, .body = "only /metrics is here\n"};
  std::vector<nlohmann::json> ranks;
  for (const Member& worker : workers_)
    if (!worker.has_ended && worker.view && worker.view->has_content()) ranks.push_back(worker.view->metrics());
  return {.type = observe::kOpenMetricsType, .body = observe::open_metrics(ranks, host_name())};
}

// {"worker": id, "pid": .., "process": "sleeping", "metrics": {..}, "operations": [..], "stacks": ".."}; without
// metrics where a program does not use Horovod, and with what was asked for.
nlohmann::json Crew::document(const Member& worker, const ObserveRequest& request) const {
  pid_t pid = worker.view ? worker.view->process_of(worker.pid) : worker.pid;
  nlohmann::json all{{"worker", worker.id}, {"pid", pid}, {"process", worker.has_ended ? "ended" : process_state(pid)}};
  if (!worker.view || !worker.view->has_content()) return all;
  all["metrics"] = worker.view->metrics();
  Operations operations = worker.view->operations(kRemembered);
  all["pending"] = pending_of(*worker.view, operations);
  all["step_seconds"] = step_of(operations);
  if (request.operations > 0)
    all["operations"] = newest(*worker.view, operations, static_cast<size_t>(request.operations));
  if (request.stacks && !worker.has_ended) all["stacks"] = worker.view->stacks();
  return all;
}

void Crew::observe(const ObserveRequest& request) {
  Looking looking{.request = request, .waiting = {}};
  for (Member& worker : workers_) {
    bool is_meant = request.worker < 0 || request.worker == worker.id;
    if (!is_meant || !request.stacks || worker.has_ended || !worker.view) continue;
    bool is_asked = std::any_of(looking_.begin(), looking_.end(),
                                [&](const Looking& other) { return other.waiting.contains(worker.id); });
    if (!is_asked) worker.view->ask_for_stacks(worker.pid);
    looking.waiting.insert(worker.id);
  }
  looking_.push_back(std::move(looking));
  answer_observers();
}

void Crew::answer_observers() {
  if (looking_.empty()) return;
  TimePoint now = Clock::now();
  for (Member& worker : workers_) {
    bool is_looked_at = std::any_of(looking_.begin(), looking_.end(),
                                    [&](const Looking& one) { return one.waiting.contains(worker.id); });
    if (!is_looked_at || (!worker.has_ended && !worker.view->stacks_settled(now))) continue;
    for (Looking& one : looking_) one.waiting.erase(worker.id);
  }
  std::vector<Looking> done;
  std::erase_if(looking_, [&](Looking& one) {
    bool is_ready = one.waiting.empty();
    if (is_ready) done.push_back(std::move(one));
    return is_ready;
  });
  for (const Looking& one : done) {
    nlohmann::json all = nlohmann::json::array();
    for (const Member& worker : workers_)
      if (one.request.worker < 0 || one.request.worker == worker.id) all.push_back(document(worker, one.request));
    events_.on_observed(one.request.id, all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

}  // namespace hvd::launcher
