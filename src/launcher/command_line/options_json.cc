#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "launcher/command_line/documents.h"
#include "launcher/command_line/option_table.h"

namespace hvd::launcher {
namespace {

using OrderedJson = nlohmann::ordered_json;

// How Python parses and checks the value of an option.
struct Described {
  const char* kind;
  OrderedJson range = {};  // [low, high], high is null without a limit; null for values that are not numbers
};

Described described_tunable(const Tunable& target) {
  TunableRange range = tunable_range(target.kind, target.variable);
  OrderedJson high = std::isfinite(range.high) ? OrderedJson(static_cast<int64_t>(range.high)) : OrderedJson();
  OrderedJson limits = OrderedJson::array({static_cast<int64_t>(range.low), std::move(high)});
  switch (target.kind) {
    case TunableKind::count: return {"int", limits};
    case TunableKind::mebibytes: return {"mebibytes", limits};
    case TunableKind::real: return {"float", limits};
    case TunableKind::counts:
    case TunableKind::path:
    case TunableKind::level: return {"text"};
  }
  return {"text"};
}

struct Describe {
  Described operator()(const Flag&) const { return {"flag"}; }
  Described operator()(const Does&) const { return {"flag"}; }
  Described operator()(const Text&) const { return {"text"}; }
  Described operator()(const Choice&) const { return {"text"}; }
  Described operator()(const Switch&) const { return {"switch"}; }
  Described operator()(const Names& target) const { return {target.is_list ? "names" : "name"}; }
  Described operator()(const Number& target) const { return {"int", OrderedJson::array({target.low, target.high})}; }
  Described operator()(const Bounds& target) const {
    return {"two ints", OrderedJson::array({target.low, target.high})};
  }
  Described operator()(const Tunable& target) const { return described_tunable(target); }
};

// Null: the option is not part of the description of a job.
OrderedJson attribute_of(const OptionRow& row) {
  std::string name(*row.attribute ? row.attribute : main_name(row));
  if (name == "-") return nullptr;
  if (!*row.attribute) name.erase(0, 2);
  if (name.starts_with('!')) name.erase(0, 1);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

OrderedJson described_row(const OptionRow& row) {
  std::string_view key = row.config_key;
  bool has_inverted_key = key.starts_with('!');
  auto [kind, range] = std::visit(Describe{}, row.target);
  auto [variable, needs] = variable_of(row);
  return {{"names", words_of(row.names)},
          {"opposite", words_of(row.opposite)},
          {"attribute", attribute_of(row)},
          {"attribute_inverted", *row.attribute == '!'},
          {"kind", kind},
          {"range", range},
          {"choices", choices_of(row)},
          {"group", row.group},
          {"excludes", row.excludes},
          {"config", has_inverted_key ? key.substr(1) : key},
          {"config_inverted", has_inverted_key},
          {"variable", variable},
          {"needs", needs},
          {"deprecated", row.deprecated},
          {"help", text_of(row)}};
}

}  // namespace

// One option per line, for readable diffs.
std::string options_json() {
  std::string text;
  for (const OptionRow& row : option_rows()) text += (text.empty() ? "[\n" : ",\n") + described_row(row).dump();
  return text + "\n]\n";
}

}  // namespace hvd::launcher
