#include <nlohmann/json.hpp>

#include "launcher/command_line/documents.h"
#include "launcher/hosts/hosts.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

// The value of an option with its own member; null if it was not given.
struct Reader {
  const CommandLine& line;

  Json operator()(const Flag& target) const { return line.*target.field ? Json(true) : Json(nullptr); }
  Json operator()(const Text& target) const { return text(line.*target.field); }
  Json operator()(const Choice& target) const { return text(line.*target.field); }
  Json operator()(const Number& target) const {
    return (line.*target.field) ? Json(*(line.*target.field)) : Json(nullptr);
  }
  Json operator()(const Bounds& target) const {
    return (line.*target.field) ? Json(*(line.*target.field)) : Json(nullptr);
  }
  Json operator()(const Names& target) const {
    return target.is_list && !(line.*target.field).empty() ? Json(line.*target.field) : Json(nullptr);
  }
  Json operator()(const Tunable&) const { return nullptr; }  // listed with the variables
  Json operator()(const Switch&) const { return nullptr; }
  Json operator()(const Does&) const { return nullptr; }

  static Json text(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }
};

Json given_options(const CommandLine& line) {
  Json options = Json::object();
  for (const OptionRow& row : option_rows()) {
    Json value = std::visit(Reader{line}, row.target);
    if (!value.is_null()) options[std::string(main_name(row).substr(2))] = std::move(value);
  }
  options.erase("dry-run");
  return options;
}

}  // namespace

Result<std::string> job_json(const CommandLine& line) {
  Json job{{"num_proc", line.num_proc}, {"hosts", Json::array()}, {"ranks", Json::array()}};
  for (const Host& host : line.hosts)
    job["hosts"].push_back(
        {{"name", host.name}, {"slots", host.slots}, {"user", host.user}, {"local", is_local(host)}});
  if (!line.hosts.empty()) {
    auto slots = assign(line.hosts, line.num_proc);
    if (!slots.ok()) return slots.status();
    for (const Slot& slot : *slots)
      job["ranks"].push_back({{"rank", slot.rank},
                              {"host", slot.host},
                              {"local_rank", slot.local_rank},
                              {"local_size", slot.local_size},
                              {"cross_rank", slot.cross_rank},
                              {"cross_size", slot.cross_size}});
  }
  job["variables"] = Json::object();
  for (const auto& [name, value] : line.variables) job["variables"][name] = value;
  job["options"] = given_options(line);
  job["command"] = line.command;
  return job.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace hvd::launcher
