#include "launcher/doctor/facts.h"

#include <fmt/core.h>

namespace hvd::launcher {
namespace {

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
std::optional<T> optional_from(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
}

Json to_json(const Installation& one) {
  return {{"horovodrun", one.horovodrun},
          {"python", one.python},
          {"python_version", one.python_version},
          {"package", one.package},
          {"library", one.library},
          {"library_version", one.library_version},
          {"library_error", one.library_error}};
}

Installation installation_from(const Json& json) {
  return {.horovodrun = json.at("horovodrun"),
          .python = json.at("python"),
          .python_version = json.at("python_version"),
          .package = json.at("package"),
          .library = json.at("library"),
          .library_version = json.at("library_version"),
          .library_error = json.at("library_error")};
}

Json to_json(const Resources& one) {
  return {{"kernel", one.kernel},
          {"machine", one.machine},
          {"cores", one.cores},
          {"quota", or_null(one.quota)},
          {"memory", one.memory},
          {"open_files", or_null(one.open_files)},
          {"locked_memory", or_null(one.locked_memory)},
          {"processes", or_null(one.processes)},
          {"has_rdma", one.has_rdma},
          {"shm", or_null(one.shm)}};
}

Resources resources_from(const Json& json) {
  return {.kernel = json.at("kernel"),
          .machine = json.at("machine"),
          .cores = json.at("cores"),
          .quota = optional_from<double>(json.at("quota")),
          .memory = json.at("memory"),
          .open_files = optional_from<uint64_t>(json.at("open_files")),
          .locked_memory = optional_from<uint64_t>(json.at("locked_memory")),
          .processes = optional_from<uint64_t>(json.at("processes")),
          .has_rdma = json.at("has_rdma"),
          .shm = optional_from<uint64_t>(json.at("shm"))};
}

Address read_address(const Json& json) {
  return {.ip = json.at("ip"),
          .port = json.at("port"),
          .interface = json.at("interface"),
          .is_virtual = json.at("is_virtual")};
}

Json to_json(const Attempt& one) {
  return {{"host", one.host},
          {"address", to_json(one.address)},
          {"time", or_null(one.time)},
          {"error", one.error},
          {"is_own", one.is_own}};
}

Attempt attempt_from(const Json& json) {
  return {.host = json.at("host"),
          .address = read_address(json.at("address")),
          .time = optional_from<double>(json.at("time")),
          .error = json.at("error"),
          .is_own = json.at("is_own")};
}

template <class T>
Json list_to_json(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(to_json(item));
  return list;
}

Status unreadable(const Json::exception& error) {
  return {Code::invalid_argument, fmt::format("it is not the output of a probe of this version: {}", error.what())};
}

}  // namespace

bool is_doubtful(const Attempt& attempt) {
  return attempt.address.is_virtual || attempt.is_own || attempt.address.ip.starts_with("fe80:") ||
         attempt.address.ip.starts_with("169.254.");
}

Json to_json(const Address& address) {
  return {
      {"ip", address.ip}, {"port", address.port}, {"interface", address.interface}, {"is_virtual", address.is_virtual}};
}

Json to_json(const Facts& facts) {
  Json json{{"installation", to_json(facts.installation)},
            {"resources", to_json(facts.resources)},
            {"launcher_error", facts.launcher_error},
            {"addresses", list_to_json(facts.addresses)},
            {"attempts", list_to_json(facts.attempts)},
            {"clock", nullptr},
            {"allreduce", nullptr}};
  if (facts.clock) json["clock"] = {{"seconds", facts.clock->seconds}, {"uncertainty", facts.clock->uncertainty}};
  if (const auto& trial = facts.allreduce)
    json["allreduce"] = {{"seconds", trial->seconds}, {"error", trial->error}, {"was_skipped", trial->was_skipped}};
  return json;
}

Result<Address> address_from(const Json& json) try { return read_address(json); } catch (const Json::exception& error) {
  return unreadable(error);
}

Result<Facts> facts_from(std::string_view text) try {
  Json json = Json::parse(text);
  Facts facts{.installation = installation_from(json.at("installation")),
              .resources = resources_from(json.at("resources")),
              .launcher_error = json.at("launcher_error"),
              .addresses = {},
              .attempts = {},
              .clock = {},
              .allreduce = {}};
  for (const Json& address : json.at("addresses")) facts.addresses.push_back(read_address(address));
  for (const Json& attempt : json.at("attempts")) facts.attempts.push_back(attempt_from(attempt));
  if (const Json& clock = json.at("clock"); !clock.is_null())
    facts.clock = ClockOffset{.seconds = clock.at("seconds"), .uncertainty = clock.at("uncertainty")};
  if (const Json& trial = json.at("allreduce"); !trial.is_null())
    facts.allreduce =
        Trial{.seconds = trial.at("seconds"), .error = trial.at("error"), .was_skipped = trial.at("was_skipped")};
  return facts;
} catch (const Json::exception& error) {
  return unreadable(error);
}

}  // namespace hvd::launcher
