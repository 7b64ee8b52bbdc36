#include <nlohmann/json.hpp>

#include "report/render.h"

namespace hvd::report {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of(const RankTime& time) {
  return {{"rank", time.rank},
          {"host", time.host},
          {"computation", time.computation},
          {"computation_before_first_operation", time.before_first},
          {"waiting_for_late_ranks", time.waiting},
          {"exposed_communication", time.transfer},
          {"overhead", time.overhead},
          {"communication", time.communication},
          {"hidden_communication", time.hidden},
          {"operations_it_was_last_for", time.last},
          {"late_by", time.late}};
}

OrderedJson json_of(const TensorTime& tensor) {
  return {{"name", tensor.name},         {"kind", tensor.kind},          {"bytes", tensor.bytes},
          {"count", tensor.count},       {"transfer", tensor.transfer},  {"transfer_total", tensor.total},
          {"lateness", tensor.lateness}, {"last_rank", tensor.last_rank}};
}

OrderedJson json_of(const HostClock& clock) {
  return {{"host", clock.host}, {"known", clock.is_known}, {"ahead", clock.offset}, {"error", clock.error}};
}

OrderedJson json_of(const Pause& pause) { return {{"step", pause.step}, {"extra", pause.extra}, {"rank", pause.rank}}; }

OrderedJson json_of(const Advice& advice) {
  return {{"what", advice.what},
          {"text", advice.text},
          {"action", advice.action},
          {"gain_per_step", advice.gain},
          {"rank", advice.rank}};
}

template <class All>
OrderedJson list_of(const All& all) {
  OrderedJson list = OrderedJson::array();
  for (const auto& one : all) list.push_back(json_of(one));
  return list;
}

}  // namespace

std::string render_json(const Findings& found) {
  OrderedJson json = {
      {"world", {{"size", found.size}, {"files", found.files}, {"hosts", found.hosts}}},
      {"recorded", found.recorded},
      {"operations", found.operations},
      {"steps",
       {{"count", found.steps.size()},
        {"counted_by", found.anchor},
        {"median", found.step},
        {"percentile_5", found.step_fast},
        {"percentile_95", found.step_slow}}},
      {"exposed_is_estimated", !found.has_waits},
      {"overlap", found.overlap < 0 ? OrderedJson(nullptr) : OrderedJson(found.overlap)},
      {"ranks", list_of(found.ranks)},
      {"waited_for", found.waited},
      {"tensors", list_of(found.tensors)},
      {"fusion",
       {{"plans_per_step", found.plans},
        {"tensors_per_plan", found.tensors_per_plan},
        {"bytes_per_plan", found.bytes_per_plan},
        {"small_plans", found.small_plans},
        {"latency", found.latency},
        {"bytes_per_second", found.rate}}},
      {"cache",
       {{"known", found.cached < 0 ? OrderedJson(nullptr) : OrderedJson(found.cached)},
        {"agreement", found.agreement}}},
      {"clocks", list_of(found.clocks)},
      {"pauses", {{"period", found.pause_period}, {"list", list_of(found.pauses)}}},
      {"advice", list_of(found.advice)},
      {"problems", found.problems},
  };
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace hvd::report
