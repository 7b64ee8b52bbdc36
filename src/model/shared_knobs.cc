#include "model/shared_knobs.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/joined.h"

namespace hvd {
namespace {

constexpr size_t kMostNamed = 8;  // ranks listed in a message; the rest are counted

std::string ranks_text(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  size_t more = ranks.size() - std::min(ranks.size(), kMostNamed);
  ranks.resize(ranks.size() - more);
  std::string text = fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", joined(ranks, ", "));
  return more == 0 ? text : fmt::format("{} and {} more", text, more);
}

std::string value_of(const std::vector<SharedKnob>& knobs, const std::string& name) {
  auto found = std::find_if(knobs.begin(), knobs.end(), [&](const SharedKnob& knob) { return knob.name == name; });
  if (found == knobs.end()) return "unknown";
  return found->value.empty() ? "unset" : found->value;
}

}  // namespace

Status compare_knobs(const std::vector<KnobsOf>& all, Scope scope) {
  std::vector<std::string> differences;
  for (const SharedKnob& knob : all.front().knobs) {
    std::map<std::string, std::vector<int32_t>> ranks_by_value;
    for (const KnobsOf& one : all) {
      std::vector<int32_t>& ranks = ranks_by_value[value_of(one.knobs, knob.name)];
      ranks.insert(ranks.end(), one.ranks.begin(), one.ranks.end());
    }
    if (ranks_by_value.size() == 1) continue;
    std::vector<std::string> values;
    for (const auto& [value, ranks] : ranks_by_value) {
      values.push_back(fmt::format("{} on {}", value, ranks_text(ranks)));
    }
    differences.push_back(fmt::format("{} is {}", knob.name, joined(values, ", ")));
  }
  if (differences.empty()) return {};
  return {Code::invalid_argument,
          fmt::format("the ranks of a {} must agree on how they exchange data, but {}; set the same value on all of "
                      "them",
                      scope == Scope::on_host ? "host" : "world", joined(differences, "; "))};
}

void encode(Encoder& out, const std::vector<SharedKnob>& knobs) {
  out.varint(knobs.size());
  for (const SharedKnob& knob : knobs) {
    out.text(knob.name);
    out.text(knob.value);
  }
}

std::vector<SharedKnob> decode_shared_knobs(Decoder& in) {
  std::vector<SharedKnob> knobs;
  for (size_t left = in.count(2); left > 0 && in.ok(); left--) {
    std::string name(in.text()), value(in.text());
    knobs.push_back({std::move(name), std::move(value)});
  }
  return knobs;
}

}  // namespace hvd
