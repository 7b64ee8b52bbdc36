#include "launcher/observatory/observatory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/joined.h"
#include "base/number.h"
#include "launcher/observatory/dump_file.h"
#include "launcher/observatory/explain.h"
#include "launcher/observatory/fields.h"
#include "launcher/processes/guard.h"

namespace hvd::launcher {
namespace {

using nlohmann::json;

constexpr Duration kWatched = std::chrono::seconds(1);    // between two rounds while somebody looks
constexpr Duration kUnwatched = std::chrono::seconds(2);  // otherwise: soon enough to report a stall
constexpr Duration kPatience = std::chrono::seconds(2);   // for an answer
constexpr size_t kSamples = 120;
constexpr size_t kLines = 20;
constexpr size_t kLongestLine = 300;
constexpr size_t kEvents = 200;
constexpr size_t kStacksReported = 4;  // ranks
constexpr size_t kFramesReported = 12;

json parsed(std::string_view text) {
  json value = json::parse(text, nullptr, false);
  return value.is_array() ? value : json::array();
}

}  // namespace

Observatory::Observatory(ObservatorySettings settings, Ask ask, Say say)
    : settings_(std::move(settings)), ask_(std::move(ask)), say_(std::move(say)), began_(wall_now()) {}

void Observatory::open() {
  auto control = HttpServer::listen_locally(
      control_name(::geteuid(), visible_pid()),
      [this](const HttpRequest& request, uint64_t from) { return on_request(request, from, *control_, true); });
  if (control.ok()) control_ = std::make_unique<HttpServer>(std::move(*control));
  if (!settings_.status_port) return;
  token_ = make_token();
  auto page = HttpServer::listen(
      settings_.address, *settings_.status_port,
      [this](const HttpRequest& request, uint64_t from) { return on_request(request, from, *page_, false); });
  if (!page.ok()) return say_(fmt::format("there will be no live page: {}", page.status().message()));
  page_ = std::make_unique<HttpServer>(std::move(*page));
  bool is_v6 = settings_.address.find(':') != std::string::npos;
  say_(fmt::format("the live page is at http://{}:{}/?token={}",
                   is_v6 ? "[" + settings_.address + "]" : settings_.address, page_->port(), token_));
}

// ---- what happens in the job ----

void Observatory::on_started(int worker, const std::string& host, pid_t pid) {
  Worker& one = workers_[worker];
  one.id = worker;
  one.host = host;
  one.pid = pid;
  on_event(fmt::format("worker {} was started on {}, pid {}", worker, host, pid));
}

void Observatory::on_ended(int worker, std::string_view how) {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  found->second.end = how;
  on_event(fmt::format("worker {} on {} has ended: {}", worker, found->second.host, how));
}

void Observatory::on_output(int worker, std::string_view bytes) {
  auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  Worker& one = found->second;
  for (char c : bytes) {
    if (c != '\n' && c != '\r') {
      if (one.partial.size() < kLongestLine) one.partial += c;
      continue;
    }
    if (!one.partial.empty()) one.lines.push_back(std::exchange(one.partial, {}));
    if (one.lines.size() > kLines) one.lines.pop_front();
  }
}

void Observatory::on_event(std::string_view what) {
  events_.push_back({.time = wall_now(), .text = std::string(what)});
  if (events_.size() > kEvents) events_.pop_front();
}

void Observatory::on_host_lost(const std::string& host) {
  on_event(fmt::format("host {} was lost", host));
  for (auto& [id, question] : questions_) question.hosts.erase(host);
}

// ---- questions ----

void Observatory::ask(ObserveRequest request, Duration patience, std::function<void(json)> then) {
  request.id = ++last_question_;
  Question& question = questions_[request.id];
  question.give_up = Clock::now() + patience;
  question.then = std::move(then);
  // A host may answer at once, before it is known whom to wait for.
  std::vector<std::string> asked = ask_(request);
  std::multiset<std::string> hosts(asked.begin(), asked.end());
  for (const json& answer : question.answers)
    if (auto host = hosts.find(text_of(answer, "host")); host != hosts.end()) hosts.erase(host);
  question.hosts = {hosts.begin(), hosts.end()};
}

void Observatory::on_observed(const std::string& host, uint64_t id, std::string_view answer) {
  auto found = questions_.find(id);
  if (found == questions_.end()) return;
  found->second.answers.push_back({{"host", host}, {"workers", parsed(answer)}});
  found->second.hosts.erase(host);
}

void Observatory::add_to(PollSet& set) {
  if (page_) page_->add_to(set);
  if (control_) control_->add_to(set);
  TimePoint next = is_asking_ || workers_.empty() ? kNever : next_round_;
  for (const auto& [id, question] : questions_)
    next = std::min(next, question.hosts.empty() ? TimePoint{} : question.give_up);
  set.wake_at(next);
}

void Observatory::look() {
  TimePoint now = Clock::now();
  std::vector<Question> done;
  for (auto question = questions_.begin(); question != questions_.end();) {
    if (!question->second.hosts.empty() && now < question->second.give_up) {
      ++question;
      continue;
    }
    done.push_back(std::move(question->second));
    question = questions_.erase(question);
  }
  for (Question& question : done) {
    json workers = json::array();
    for (json& answer : question.answers)
      for (json& worker : answer["workers"]) {
        if (!worker.is_object()) continue;
        auto known = workers_.find(static_cast<int>(number_of(worker, "worker")));
        if (known != workers_.end()) worker["host"] = known->second.host;
        workers.push_back(std::move(worker));
      }
    question.then(std::move(workers));
  }
  if (is_asking_ || now < next_round_ || workers_.empty()) return;
  next_round_ = now + period();
  is_asking_ = true;
  ask({}, kPatience, [this](const json& workers) {
    is_asking_ = false;
    take_round(workers);
  });
}

Duration Observatory::period() const { return page_ ? kWatched : kUnwatched; }

// ---- a round ----

void Observatory::take_round(const json& workers) {
  double now = wall_now(), elapsed = last_round_ > 0 ? now - last_round_ : 0;
  last_round_ = now;
  for (const json& document : workers) {
    auto found = workers_.find(static_cast<int>(number_of(document, "worker")));
    if (found != workers_.end()) found->second.document = document;
  }
  if (elapsed > 0) {
    for (auto& [id, worker] : workers_) measure(worker, elapsed);
    measure_lateness();
  }
  find_stalls();
  if (page_ && page_->has_streams()) publish();
}

void Observatory::measure(Worker& worker, double elapsed) {
  const json& metrics = field(worker.document, "metrics");
  auto finished = static_cast<uint64_t>(number_of(metrics, "finished"));
  double bytes = 0;
  for (const auto& [kind, total] : field(metrics, "operations").items()) bytes += number_of(total, "bytes");
  double wait = number_of(metrics, "wait_seconds");
  if (!worker.is_new)
    worker.samples.push_back(
        {.time = last_round_,
         .operations = static_cast<double>(finished - std::min(finished, worker.finished)) / elapsed,
         .bytes = std::max(0.0, bytes - worker.bytes) / elapsed,
         .waited = std::max(0.0, wait - worker.wait) / elapsed});
  if (worker.samples.size() > kSamples) worker.samples.pop_front();
  worker.finished = finished;
  worker.bytes = bytes;
  worker.wait = wait;
  worker.is_new = false;
}

// All members of a world wait for the last one, which waits the least itself: how much less than the one that waits
// the most is by how much it was late.
void Observatory::measure_lateness() {
  double most = 0;
  std::vector<std::pair<Worker*, double>> waits;
  for (auto& [id, worker] : workers_) {
    const json& agreement = field(field(worker.document, "metrics"), "agreement");
    double seconds = number_of(agreement, "seconds"), count = number_of(agreement, "count");
    double mean = count > worker.agreed ? (seconds - worker.agreement) / (count - worker.agreed) : -1;
    worker.agreement = seconds;
    worker.agreed = count;
    if (mean < 0 || !worker.end.empty()) continue;
    most = std::max(most, mean);
    waits.emplace_back(&worker, mean);
  }
  for (auto& [worker, mean] : waits)
    if (!worker->samples.empty()) worker->samples.back().lateness = most - mean;
}

// ---- stalls ----

void Observatory::find_stalls() {
  std::set<int64_t> missing;
  bool is_new = false;
  for (auto& [id, worker] : workers_) {
    const json& metrics = field(worker.document, "metrics");
    auto stalls = static_cast<uint64_t>(number_of(metrics, "stalls"));
    if (stalls > worker.stalls) {
      is_new = true;
      for (const json& rank : field(metrics, "stalled_on"))
        if (rank.is_number_integer()) missing.insert(rank.get<int64_t>());
    }
    worker.stalls = stalls;
  }
  if (!is_new || missing.empty()) return;
  ask({.stacks = true, .operations = kRingSize}, kStacksWait, [this, missing](const json& workers) {
    report_stacks(workers, missing);
    std::string reason = fmt::format(
        "Some ranks waited for {} and the stall inspector reported it.",
        missing.size() == 1 ? fmt::format("rank {}", *missing.begin()) : fmt::format("{} ranks", missing.size()));
    if (is_gathering_ || !dump_file_.empty()) return;  // one is enough
    write_dump(reason, workers);
    if (std::string note = dump_note(); !note.empty()) say_(note);
  });
}

void Observatory::report_stacks(const json& workers, const std::set<int64_t>& ranks) {
  size_t told = 0;
  for (const json& worker : workers) {
    int64_t rank = rank_of(worker);
    if (!ranks.contains(rank) || told++ >= kStacksReported) continue;
    std::string where = fmt::format("rank {} on {} (pid {}), which others wait for,", rank, text_of(worker, "host"),
                                    static_cast<int64_t>(number_of(worker, "pid")));
    std::string process = text_of(worker, "process");
    std::vector<std::string> frames = python_frames(text_of(worker, "stacks"));
    if (frames.empty() || process == "stopped") {
      say_(fmt::format("{} shows no Python stack; its process is {}", where, process));
      continue;
    }
    std::string shown = where + " is here:";
    for (size_t i = 0; i < frames.size() && i < kFramesReported; i++) shown += "\n    " + frames[i];
    say_(shown);
  }
}

// ---- the dump ----

void Observatory::gather(const std::string& reason) {
  if (is_gathering_ || settings_.dump_folder == "none") return;
  is_gathering_ = true;
  ask({.stacks = true, .operations = kRingSize}, kStacksWait, [this, reason](json workers) {
    is_gathering_ = false;
    write_dump(reason, std::move(workers));
  });
}

void Observatory::dump_now() {
  if (settings_.dump_folder == "none") return say_("no dump is written: HOROVOD_DUMP_DIR is none");
  ask({.stacks = true, .operations = kRingSize}, kStacksWait, [this](json workers) {
    write_dump("A dump was asked for.", std::move(workers));
    if (std::string note = dump_note(); !note.empty()) say_(note);
  });
}

json Observatory::dump_of(const std::string& reason, json workers) const {
  json events = json::array();
  for (const Event& event : events_) events.push_back({{"time", event.time}, {"text", event.text}});
  for (json& document : workers) {
    auto found = workers_.find(static_cast<int>(number_of(document, "worker")));
    if (found == workers_.end()) continue;
    if (!found->second.end.empty()) document["end"] = found->second.end;
    document["lines"] = found->second.lines;
  }
  return {{"format", "horovod-dump"}, {"version", 1},     {"reason", reason},
          {"time", wall_now()},       {"began", began_},  {"command", settings_.command},
          {"horovod", HVD_VERSION},   {"events", events}, {"workers", std::move(workers)}};
}

// Nothing is written about programs that do not use Horovod.
void Observatory::write_dump(const std::string& reason, json workers) {
  bool has_ranks = std::any_of(workers.begin(), workers.end(), [](const json& one) { return rank_of(one) >= 0; });
  if (!has_ranks || settings_.dump_folder == "none") return;
  auto file = new_dump_file(settings_.dump_folder);
  Status status = file.status();
  if (file.ok()) status = write_all(*file, dumped(dump_of(reason, std::move(workers))));
  if (status.ok()) {
    dump_file_ = file->path;
    dump_problem_.clear();
  } else {
    dump_problem_ = fmt::format("no dump was written: {}", status.message());
  }
}

std::string Observatory::dump_note() const {
  if (!dump_file_.empty()) return fmt::format("What every rank was doing: horovodrun --explain {}", dump_file_);
  return dump_problem_;
}

std::optional<ObservatorySettings> observatory_settings(const Options& options) {
  auto value = [&](const char* name) -> std::string {
    for (const auto& [key, given] : options.variables)
      if (key == name) return given;
    const char* inherited = std::getenv(name);
    return inherited == nullptr ? "" : inherited;
  };
  if (value("HOROVOD_OBSERVE") == "0") return std::nullopt;
  ObservatorySettings settings{.command = joined(options.command, " "), .ranks = options.num_proc};
  settings.status_port = read_number<uint16_t>(value("HOROVOD_STATUS_PORT"));
  if (std::string address = value("HOROVOD_OBSERVE_ADDRESS"); !address.empty()) settings.address = address;
  settings.dump_folder = value("HOROVOD_DUMP_DIR");
  return settings;
}

}  // namespace hvd::launcher
