// What the observatory shows to others: the page, its data, and the answers for horovodrun --top and --dump.
#include <cstdlib>
#include <utility>

#include "launcher/observatory/explain.h"
#include "launcher/observatory/fields.h"
#include "launcher/observatory/observatory.h"
#include "launcher/observatory/page.h"
#include "launcher/processes/guard.h"

namespace hvd::launcher {

using nlohmann::json;

namespace {

HttpReply json_reply(const json& value) { return {.type = "application/json", .body = dumped(value) + "\n"}; }

}  // namespace

json Observatory::status_of(const Worker& worker) const {
  const json& metrics = field(worker.document, "metrics");
  json samples = json::array();
  for (const Sample& sample : worker.samples) samples.push_back({sample.time, sample.operations, sample.lateness});
  Sample last = worker.samples.empty() ? Sample{} : worker.samples.back();
  json links = json::object();
  if (metrics.contains("links")) links = metrics["links"];
  return {
      {"worker", worker.id},
      {"rank", rank_of(worker.document)},
      {"host", worker.host},
      {"pid", worker.pid},
      {"state", !worker.end.empty() ? "ended: " + worker.end : text_of(metrics, "state", "no rank yet")},
      {"process", worker.end.empty() ? text_of(worker.document, "process", "starting") : "ended"},
      {"generation", number_of(metrics, "generation")},
      {"operations_per_second", last.operations},
      {"bytes_per_second", last.bytes},
      {"waiting_share", last.waited},
      {"lateness_seconds", last.lateness},
      {"step_seconds", field(worker.document, "step_seconds").is_number() ? worker.document["step_seconds"] : json()},
      {"in_flight", number_of(metrics, "queue_depth")},
      {"resident_bytes", number_of(metrics, "resident_bytes")},
      {"stalls", number_of(metrics, "stalls")},
      {"commits", number_of(metrics, "commits")},
      {"links", links},
      {"samples", samples},
      {"lines", worker.lines}};
}

json Observatory::status() const {
  json workers = json::array(), events = json::array(), documents = json::array(), waiting = json::array();
  for (const auto& [id, worker] : workers_) {
    workers.push_back(status_of(worker));
    if (worker.end.empty() && worker.document.is_object()) documents.push_back(worker.document);
  }
  for (const Waiting& one : find_waiting(documents))
    waiting.push_back({{"name", one.name},
                       {"kind", one.kind},
                       {"process_set", one.process_set},
                       {"since", one.since},
                       {"waiting", one.waiting},
                       {"missing", one.missing},
                       {"agreed", one.is_agreed}});
  for (const Event& event : events_) events.push_back({{"time", event.time}, {"text", event.text}});
  return {{"version", 1},
          {"time", wall_now()},
          {"began", began_},
          {"pid", visible_pid()},
          {"horovod", HVD_VERSION},
          {"ranks", settings_.ranks},
          {"command", settings_.command},
          {"workers", workers},
          {"waiting", waiting},
          {"events", events}};
}

void Observatory::publish() { page_->publish(dumped(status())); }

HttpReply Observatory::on_request(const HttpRequest& request, uint64_t from, HttpServer& server, bool is_local) {
  if (!is_local && !equal_tokens(request.token, token_))
    return {.status = 401, .body = "the token is needed that horovodrun printed: ?token=...\n"};
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .body = kPage};
  if (request.path == "/status.json") return json_reply(status());
  if (request.path == "/events") return {.body = event_text(dumped(status())), .is_stream = true};
  if (request.path == "/stacks" || request.path == "/dump") {
    bool is_dump = request.path == "/dump";
    int32_t worker = -1;
    if (auto id = request.query.find("worker"); id != request.query.end()) worker = std::atoi(id->second.c_str());
    ask({.worker = worker, .stacks = true, .operations = is_dump ? kRingSize : 0}, kStacksWait,
        [this, from, &server, is_dump](json workers) {
          server.answer(from, json_reply(is_dump ? dump_of("A dump was asked for.", std::move(workers)) : workers));
        });
    return {.is_later = true};
  }
  return {.status = 404, .body = "there is /, /status.json, /events, /stacks?worker=N and /dump\n"};
}

}  // namespace hvd::launcher
