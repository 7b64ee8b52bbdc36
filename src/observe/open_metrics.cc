#include "observe/open_metrics.h"

#include <fmt/core.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace hvd::observe {
namespace {

using nlohmann::json;

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// One family of samples after the other, as the format demands.
class Page {
 public:
  Page(const std::vector<json>& ranks, const std::string& host) : host_(escaped(host)) {
    for (const json& rank : ranks)
      if (rank.is_object() && rank.contains("rank")) ranks_.push_back(&rank);
  }

  void single(const char* type, const std::string& name, const char* help, const char* field) {
    begin(type, name, help);
    for (const json* rank : ranks_) sample(type, name, *rank, "", rank->value(field, json(0)));
  }
  // One sample for each entry of an object; `label` is what its names are.
  void each(const std::string& name, const char* help, const char* group, const char* label, const char* field,
            const char* type = "counter") {
    begin(type, name, help);
    for (const json* rank : ranks_) {
      if (!rank->contains(group) || !(*rank)[group].is_object()) continue;
      for (const auto& [key, value] : (*rank)[group].items())
        if (value.is_object())
          sample(type, name, *rank, fmt::format(",{}=\"{}\"", label, escaped(key)), value.value(field, json(0)));
    }
  }
  void histogram(const std::string& name, const char* help, const char* field) {
    begin("histogram", name, help);
    for (const json* rank : ranks_) {
      if (!rank->contains(field)) continue;
      const json& data = (*rank)[field];
      for (const json& bucket : data["buckets"])
        line(name + "_bucket", *rank, fmt::format(",le=\"{}\"", bucket[0].get<double>()), bucket[1]);
      line(name + "_bucket", *rank, ",le=\"+Inf\"", data["count"]);
      line(name + "_count", *rank, "", data["count"]);
      line(name + "_sum", *rank, "", data["seconds"]);
    }
  }
  void states() {
    begin("gauge", "horovod_rank_running", "1 while the rank is in a world");
    for (const json* rank : ranks_)
      line("horovod_rank_running", *rank, "", rank->value("state", "") == "running" ? json(1) : json(0));
  }
  std::string take() { return std::move(text_) + "# EOF\n"; }

 private:
  void begin(std::string_view type, const std::string& name, const char* help) {
    text_ += fmt::format("# TYPE {} {}\n# HELP {} {}\n", name, type, name, help);
  }
  void sample(std::string_view type, const std::string& name, const json& rank, const std::string& labels,
              const json& value) {
    line(type == "counter" ? name + "_total" : name, rank, labels, value);
  }
  void line(const std::string& name, const json& rank, const std::string& labels, const json& value) {
    if (!value.is_number()) return;
    text_ +=
        fmt::format("{}{{rank=\"{}\",host=\"{}\"{}}} {}\n", name, rank["rank"].dump(), host_, labels, value.dump());
  }

  std::vector<const json*> ranks_;
  std::string host_, text_;
};

}  // namespace

std::string open_metrics(const std::vector<json>& ranks, const std::string& host) {
  Page page(ranks, host);
  page.states();
  page.each("horovod_operations", "Operations that have ended", "operations", "kind", "count");
  page.each("horovod_operation_bytes", "Bytes of inputs of operations", "operations", "kind", "bytes");
  page.each("horovod_operation_failures", "Operations that have failed", "operations", "kind", "failed");
  page.each("horovod_dtype_operations", "Operations by element type", "dtypes", "dtype", "count");
  page.each("horovod_dtype_bytes", "Bytes by element type", "dtypes", "dtype", "bytes");
  page.each("horovod_process_set_operations", "Operations by process set", "process_sets", "process_set", "count");
  page.each("horovod_process_set_bytes", "Bytes by process set", "process_sets", "process_set", "bytes");
  page.each("horovod_process_set_agreement_seconds", "Time from submit until all ranks had submitted", "process_sets",
            "process_set", "agreement_seconds");
  page.histogram("horovod_agreement_seconds", "From submit until all ranks had submitted: waiting for the others",
                 "agreement");
  page.histogram("horovod_execution_seconds", "From agreement to the end of an operation", "execution");
  page.single("gauge", "horovod_queue_depth", "Operations in flight", "queue_depth");
  page.single("gauge", "horovod_queue_depth_max", "Most operations in flight at a time", "queue_depth_max");
  page.single("counter", "horovod_plans", "Plans that were executed", "plans");
  page.single("counter", "horovod_plan_tensors", "Tensors of those plans", "plan_tensors");
  page.single("counter", "horovod_plan_bytes", "Bytes of those plans", "plan_bytes");
  page.single("counter", "horovod_carried", "Small allreduces that needed no plan", "carried");
  page.single("counter", "horovod_cache_hits", "Requests that the plan cache knew", "cache_hits");
  page.single("counter", "horovod_cache_misses", "Requests that travelled in full", "cache_misses");
  page.single("counter", "horovod_waits", "Times that a thread of the program waited for an operation", "waits");
  page.single("counter", "horovod_wait_seconds", "How long they waited", "wait_seconds");
  page.single("counter", "horovod_heartbeats", "Heartbeats", "heartbeats");
  page.single("counter", "horovod_worlds", "Worlds that this process was in", "worlds");
  page.single("gauge", "horovod_generation", "Generation of the world", "generation");
  page.single("gauge", "horovod_world_size", "Ranks in the world", "size");
  page.single("counter", "horovod_commits", "Commits of the elastic state", "commits");
  page.single("counter", "horovod_recovered_failures", "Failures that the program has recovered from",
              "recovered_failures");
  page.single("counter", "horovod_stalls", "Reports of stalled operations", "stalls");
  page.single("gauge", "horovod_resident_bytes", "Resident memory of the process", "resident_bytes");
  page.each("horovod_link_sent_bytes", "Bytes that another rank's host has acknowledged", "links", "peer",
            "sent_bytes");
  page.each("horovod_link_received_bytes", "Bytes received from another rank", "links", "peer", "received_bytes");
  page.each("horovod_link_retransmits", "TCP segments sent again", "links", "peer", "retransmits");
  page.each("horovod_link_round_trip_seconds", "Round trip to another rank", "links", "peer", "round_trip_seconds",
            "gauge");
  return page.take();
}

}  // namespace hvd::observe
