// Construction of an engine, and its timeline; engine.cc has its operation.
#include <fmt/core.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/settings.h"
#include "model/host_tree.h"

namespace hvd {

Engine::Engine(const World& world, const Config& config, observe::Writer* observer)
    : world_(world),
      config_(config),
      observer_(observer),
      has_spare_core_(has_spare_core(world, config)),
      can_defer_(world.host_of.empty() && !has_spare_core_) {}

Result<std::unique_ptr<Engine>> Engine::create(const World& world, const Config& config, WorldGroup group,
                                               const MakePolled& make_polled, observe::Writer* observer) {
  std::unique_ptr<Engine> engine(new Engine(world, config, observer));
  if (Status status = engine->open(std::move(group), make_polled); !status.ok()) return status;
  return engine;
}

Status Engine::open(WorldGroup group, const MakePolled& make_polled) {
  CoordinatorSettings settings = coordinator_settings(config_, group.host);
  is_homogeneous_ = group.is_homogeneous;
  auto transport = Transport::create(std::move(group.host), transport_settings(world_, config_));
  if (!transport.ok()) return transport.status();
  transport_ = std::move(*transport);
  if (world_.local_rank == 0)
    log_info("{} on {} {}", world_.local_size == 1 ? "1 rank" : fmt::format("{} ranks", world_.local_size), world_.host,
             world_.crowded ? "must share cores: waiting ranks yield" : "can each have a core: waiting ranks spin");
  if (Status status = attach_mesh(group); !status.ok()) return status;
  auto node = make_node(group);
  if (!node.ok()) return node.status();
  // Before loading the backends, which may take long and may lose a rank.
  if (keeps_watch(world_, config_)) {
    WatchSettings limits{.heartbeat = seconds(config_.heartbeat_time), .silence = seconds(config_.silence_time)};
    watch_ = std::make_unique<Watch>(*transport_, links_.get(), limits, observer_);
  }
  if (Status status = make_executor(make_polled); !status.ok()) {
    transport_->abort(status);
    return status;
  }
  if (!config_.timeline.empty() && config_.timeline != "DYNAMIC") {
    if (Status status = start_timeline(config_.timeline, config_.timeline_mark_cycles); !status.ok()) {
      log_error("{}", status.message());  // timeline errors must not abort training
    }
  }
  settings.carried = carried_.get();
  agreement_ = std::make_unique<Agreement>(world_, config_, settings, *transport_, &recorder_, std::move(*node));
  if (world_.rank == 0) {
    if (settings.stall_shutdown > Duration{} && settings.stall_shutdown < settings.stall_warning) {
      log_warning("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is ignored: it is less than HOROVOD_STALL_CHECK_TIME_SECONDS");
    }
    if (config_.autotune) {
      auto tuner = Tuner::create(tuner_settings(config_, settings.tuning));
      if (!tuner.ok()) return tuner.status();
      tuner_ = std::move(*tuner);
    }
  }
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  return {};
}

Status Engine::make_executor(const MakePolled& make_polled) {
  auto process_sets = ProcessSetTable::create(world_, config_, *transport_);
  if (!process_sets.ok()) return process_sets.status();
  process_sets_ = std::move(*process_sets);
  auto backends = BackendList::create(world_, config_, *transport_, *process_sets_, make_polled);
  if (!backends.ok()) return backends.status();
  backends_ = std::move(*backends);
  auto on_done = [this](Task& task) { this->on_done(task); };
  executor_ = std::make_unique<Executor>(Executor::Parts{.transport = *transport_,
                                                         .operations = *operations_,
                                                         .process_sets = *process_sets_,
                                                         .backends = *backends_,
                                                         .recorder = recorder_},
                                         on_done, [this] { on_launched(); });
  if (CarriedAllreduces::is_possible(world_, config_, backends_->has_polled())) {
    carried_ = std::make_unique<CarriedAllreduces>(world_, *transport_, *operations_, recorder_, on_done, observer_);
  }
  return {};
}

Status Engine::attach_mesh(WorldGroup& group) {
  if (group.hosts.empty()) return {};
  auto mesh = Mesh::create(
      [this](int32_t peer, const Status& status) {
        watch_->report_loss({Code::peer_lost,
                             fmt::format("{} is gone: {}", transport_->rank_name(peer), status.message()),
                             transport_->origin_of(OriginKind::lost, peer)});
      },
      {.stripes = {}, .all_stripes = config_.tcp_streams > 0});
  if (!mesh.ok()) return mesh.status();
  for (auto& [peer, streams] : group.streams) (*mesh)->add(peer, std::move(streams));
  (*mesh)->set_dialer(std::move(group.dialer));
  return transport_->attach(std::move(*mesh));
}

Result<Agreement::Node> Engine::make_node(WorldGroup& group) {
  Agreement::Node node;
  if (group.hosts.empty() || !transport_->is_root()) return node;
  std::vector<std::vector<int32_t>> ranks;
  for (const HostRecord& host : group.hosts) {
    std::vector<int32_t>& of_host = ranks.emplace_back();
    for (const HostRecord::Rank& rank : host.ranks) of_host.push_back(rank.rank);
  }
  node.below = ranks_below(world_.host_of[static_cast<size_t>(world_.rank)], ranks);
  std::vector<HostLinks::Child> children;
  for (auto& [host, link] : group.children) {
    children.push_back({ranks[static_cast<size_t>(host)].front(), std::move(link)});
  }
  auto links = HostLinks::create(*transport_, std::move(group.parent), std::move(children));
  if (!links.ok()) return links.status();
  links_ = std::move(*links);
  node.links = links_.get();
  transport_->waiter().set_chores([this](TimePoint now) {
    links_->progress(now);
    return links_->next_deadline();
  });
  return node;
}

std::vector<int> Engine::descriptors() const {
  std::vector<int> fds = transport_->descriptors();
  agreement_->list_descriptors(fds);
  return fds;
}

// ---- timeline ----

std::string Engine::timeline_path(const std::string& path) const {
  if (world_.rank == 0) return path;
  size_t dot = path.rfind('.'), slash = path.rfind('/');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) dot = path.size();
  return fmt::format("{}.rank{}{}", path.substr(0, dot), world_.rank, path.substr(dot));
}

Status Engine::start_timeline(const std::string& path, bool mark_cycles) {
  if (config_.timeline.empty()) {
    return {Code::invalid_argument,
            "the timeline was not enabled: set HOROVOD_TIMELINE to a path or to DYNAMIC before hvd.init()"};
  }
  if (world_.rank != 0 && !config_.timeline_all_ranks) return {};
  std::string file = timeline_path(path);
  auto current = recorder_.timeline();
  if (current && current->path() == file) return {};
  std::optional<TimelinePlace> place;
  if (config_.timeline_all_ranks) place = TimelinePlace{.size = world_.size, .host = world_.host};
  auto timeline = Timeline::create(file, mark_cycles, world_.rank, place);
  if (!timeline.ok()) {
    log_error("{}", timeline.status().message());
    return {};
  }
  recorder_.set_timeline(std::move(*timeline));
  return {};
}

Status Engine::stop_timeline() {
  recorder_.set_timeline(nullptr);
  return {};
}

}  // namespace hvd
