#include "launcher/doctor/probe.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "launcher/doctor/doctor.h"
#include "launcher/doctor/door.h"
#include "launcher/doctor/facts.h"
#include "launcher/doctor/neighbours.h"
#include "model/config.h"
#include "rendezvous/store_client.h"

namespace hvd::launcher {
namespace {

constexpr double kLongestCall = 3;  // seconds for one address

Bytes bytes_of(const Json& json) {
  std::string text = json.dump();
  auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

Json json_of(const Bytes& bytes) {
  return Json::parse(reinterpret_cast<const char*>(bytes.data()),
                     reinterpret_cast<const char*>(bytes.data() + bytes.size()), nullptr, false);
}

// All probes perform the same steps, each within a share of the start timeout, so that none waits for one that has
// given up: examine the host, connect to the store, try addresses, agree whether to try an allreduce, run it.
class Probe {
 public:
  Probe(const Config& config, std::string program)
      : config_(config), program_(std::move(program)), began_(Clock::now()) {}

  Status run() {
    facts_.resources = read_resources();
    facts_.installation = find_installation(program_, seconds(config_.start_timeout * 0.25));
    load_library();
    tell();
    std::string problem = library_ ? "" : "libhorovod.so cannot be used on " + config_.hostname;
    if (config_.size > 1) {
      auto agreed = meet_others(problem);
      if (!agreed.ok()) return agreed.status();
      problem = std::move(*agreed);
      tell();
    }
    facts_.allreduce =
        problem.empty() ? library_->try_allreduce(share(0.95)) : Trial{.error = problem, .was_skipped = true};
    tell();
    return {};
  }

 private:
  TimePoint share(double part) const { return after(began_, seconds(config_.start_timeout * part)); }

  void tell() const {
    fmt::print("{}\n", to_json(facts_).dump(-1, ' ', false, Json::error_handler_t::replace));
    std::fflush(stdout);
  }

  void load_library() {
    Installation& own = facts_.installation;
    if (own.library.empty()) {
      own.library_error = "there is no libhorovod.so in the package, and none beside horovodrun";
      return;
    }
    auto library = Library::load(own.library);
    if (library.ok()) {
      own.library_version = library->version();
      library_.emplace(std::move(*library));
    } else {
      own.library_error = library.status().message();
    }
  }

  // The reason not to try an allreduce; the same for all probes.
  Result<std::string> meet_others(const std::string& own_problem) {
    auto credentials = credentials_from_config(config_);
    if (!credentials.ok()) return credentials.status();
    auto door = ProbeDoor::open(config_.network_interfaces, *credentials, config_.rank);
    if (!door.ok()) return door.status();
    facts_.addresses = (*door)->addresses();
    auto store = open_store(*credentials);
    if (!store.ok()) {
      facts_.launcher_error = store.status().message();
      return "the launcher cannot be reached from " + config_.hostname;
    }
    auto neighbours = introduce(**store);
    if (!neighbours.ok()) return neighbours.status();
    call(*neighbours, *credentials);
    tell();
    return agree(**store, own_problem.empty() ? unreached(*neighbours) : own_problem);
  }

  Result<std::unique_ptr<StoreClient>> open_store(const Credentials& credentials) const {
    auto endpoints = resolve(config_.rendezvous_addr, static_cast<uint16_t>(config_.rendezvous_port));
    if (!endpoints.ok()) return endpoints.status();
    return StoreClient::connect(std::move(*endpoints), credentials, config_.rank, share(0.4));
  }

  // Only those that arrive in time.
  Result<Store::Entries> exchange(Store& store, const std::string& prefix, const Json& own, TimePoint until) const {
    TimePoint patience = share(0.9);
    Status status = store.set(fmt::format("{}{:06}", prefix, config_.rank), bytes_of(own), patience);
    if (!status.ok()) return status;
    auto all = store.gather(prefix, static_cast<size_t>(config_.size), until);
    return all.ok() ? std::move(all) : store.gather(prefix, 1, patience);
  }

  Result<std::vector<Neighbour>> introduce(Store& store) const {
    Json own{{"rank", config_.rank}, {"host", config_.hostname}, {"addresses", Json::array()}};
    for (const Address& address : facts_.addresses) own["addresses"].push_back(to_json(address));
    auto entries = exchange(store, "doctor/address/", own, share(0.5));
    if (!entries.ok()) return entries.status();
    std::vector<Neighbour> neighbours;
    for (const auto& [key, value] : *entries) {
      auto neighbour = neighbour_of(json_of(value));
      if (neighbour && neighbour->rank != config_.rank) neighbours.push_back(std::move(*neighbour));
    }
    return neighbours;
  }

  static std::optional<Neighbour> neighbour_of(const Json& json) try {
    Neighbour neighbour{.rank = json.at("rank"), .host = json.at("host"), .addresses = {}};
    for (const Json& item : json.at("addresses"))
      if (auto address = address_from(item); address.ok()) neighbour.addresses.push_back(std::move(*address));
    return neighbour;
  } catch (const Json::exception&) {
    return std::nullopt;
  }

  void call(const std::vector<Neighbour>& neighbours, const Credentials& credentials) {
    std::vector<std::unique_ptr<Stream>> streams;
    Duration patience = seconds(std::min(kLongestCall, config_.start_timeout * 0.15));
    facts_.attempts = try_addresses(neighbours, credentials, config_.rank, patience, share(0.65), streams);
    if (config_.rank == 0) facts_.clock = ClockOffset{};  // all others are compared with rank 0
    for (size_t i = 0; i < neighbours.size(); i++) {
      if (neighbours[i].rank != 0 || streams[i] == nullptr) continue;
      if (auto offset = compare_clocks(*streams[i], share(0.7)); offset.ok()) facts_.clock = *offset;
    }
  }

  std::string unreached(const std::vector<Neighbour>& neighbours) const {
    std::set<std::string> reached;
    for (const Attempt& attempt : facts_.attempts)
      if (attempt.time) reached.insert(attempt.host);
    for (const Neighbour& neighbour : neighbours)
      if (!reached.contains(neighbour.host)) return fmt::format("{} cannot reach {}", config_.hostname, neighbour.host);
    return "";
  }

  Result<std::string> agree(Store& store, const std::string& own_problem) const {
    auto entries = exchange(store, "doctor/problem/", own_problem, share(0.75));
    if (!entries.ok()) return entries.status();
    if (entries->size() < static_cast<size_t>(config_.size))
      return fmt::format("{} of {} hosts did not take part in time",
                         static_cast<size_t>(config_.size) - entries->size(), config_.size);
    for (const auto& [key, value] : *entries) {
      Json problem = json_of(value);
      if (problem.is_string() && !problem.get_ref<const std::string&>().empty()) return problem.get<std::string>();
    }
    return std::string();
  }

  const Config& config_;
  std::string program_;
  TimePoint began_;
  Facts facts_;
  std::optional<Library> library_;
};

}  // namespace

int run_probe(const std::string& program) {
  auto config = config_from_environment();
  Status status = config.status();
  if (config.ok()) {
    static std::optional<Probe> probe;  // never destroyed: the library may still be using it
    probe.emplace(*config, program);
    status = probe->run();
  }
  if (!status.ok()) fmt::print(stderr, "{}\n", status.message());
  std::fflush(nullptr);
  ::_exit(status.ok() ? 0 : 1);
}

}  // namespace hvd::launcher
