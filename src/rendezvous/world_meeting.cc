#include "rendezvous/world_meeting.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "net/congestion.h"
#include "net/interfaces.h"
#include "rendezvous/host_meeting.h"
#include "rendezvous/leaders_meeting.h"
#include "rendezvous/parcel.h"
#include "rendezvous/report.h"
#include "rendezvous/store_client.h"
#include "rendezvous/store_server.h"

namespace hvd {
namespace {

constexpr Duration kPatience = std::chrono::seconds(8);  // a leader waits for other leaders beyond its deadline
constexpr int32_t kStreamsToTry = 4;  // if the number is chosen by measurement (transport/width_choice.h)
constexpr Duration kLastWord = std::chrono::seconds(2);

class WorldMeeting {
 public:
  WorldMeeting(const World& world, const Config& config, int interrupt)
      : world_(world),
        config_(config),
        interrupt_(interrupt),
        deadline_(Clock::now() + seconds(config.start_timeout)) {}

  Result<WorldGroup> meet_alone(UniqueFd memory) {
    auto met = meet_on_host(world_, config_, std::move(memory), arrival(0), deadline_, interrupt_);
    if (!met.ok()) return met.status();
    group_.host = std::move(met->group);
    group_.crowded = met->crowded;
    group_.host_of_rank.assign(static_cast<size_t>(world_.size), 0);
    return std::move(group_);
  }

  Result<WorldGroup> meet(UniqueFd memory) {
    auto credentials = credentials_from_config(config_);
    if (!credentials.ok()) return credentials.status();
    credentials_.emplace(*credentials);
    if (Status status = open_door(); !status.ok()) return status;
    auto met = meet_on_host(world_, config_, std::move(memory), arrival(acceptor_->port()), deadline_, interrupt_);
    if (!met.ok()) {
      if (is_leader() && !is_readable(interrupt_)) tell_other_hosts(met.status());
      return met.status();
    }
    group_.host = std::move(met->group);
    Result<Bytes> table = is_leader() ? meet_leaders(*met) : from_leader();
    if (Status status = hand_on(table); !status.ok()) return status;
    if (Status status = take_table(*table); !status.ok()) return status;
    Status opened = open_connections();
    Result<Bytes> mine = opened.ok() ? Result<Bytes>(Bytes()) : Result<Bytes>(opened);
    Result<Bytes> verdict = is_leader() ? confirm(std::move(mine)) : report(mine);
    if (Status status = hand_on(verdict); !status.ok()) return status;
    take_links();
    return std::move(group_);
  }

 private:
  bool is_leader() const { return world_.local_rank == 0; }

  HostArrival arrival(uint16_t port) const {
    return {.port = port, .knobs = shared_knobs(config_, Scope::on_host), .cores = own_cores()};
  }

  // A rank that is busy for long does not read. Mesh::find_unreachable detects unreachable hosts.
  SocketOptions data_options() const {
    SocketOptions options;
    options.user_timeout = SocketOptions::kPatient;
    options.congestion = first_congestion(config_.tcp_congestion);
    return options;
  }

  Status open_door() {
    auto listener = listen_on(config_.network_interfaces);
    if (!listener.ok()) return listener.status();
    AcceptorLimits limits;
    limits.options = data_options();
    Welcome welcome{.purposes = {Purpose::data}, .generation = world_.generation, .rank = world_.rank};
    if (is_leader()) welcome.purposes.push_back(Purpose::control);
    auto acceptor = Acceptor::create(std::move(*listener), *credentials_, std::move(welcome), limits);
    if (!acceptor.ok()) return acceptor.status();
    acceptor_ = std::move(*acceptor);
    return {};
  }

  // The launcher hosts the store. Otherwise rank 0 does, if the address is its own and still free.
  Status open_store() {
    auto endpoints = resolve(config_.rendezvous_addr, static_cast<uint16_t>(config_.rendezvous_port));
    if (!endpoints.ok()) return endpoints.status();
    if (world_.rank == 0) {
      auto own = read_interfaces();
      if (!own.ok()) return own.status();
      std::vector<IpAddress> addresses;
      for (const Endpoint& endpoint : *endpoints) {
        bool is_own = std::any_of(own->begin(), own->end(),
                                  [&](const InterfaceAddress& mine) { return mine.ip == endpoint.address.ip; });
        if (is_own) addresses.push_back(endpoint.address.ip);
      }
      uint16_t port = static_cast<uint16_t>(config_.rendezvous_port);
      auto listener = addresses.empty() ? Result<Listener>(Status(Code::unknown, "not an address of this host"))
                                        : listen_on(addresses, {port, port});
      if (listener.ok()) {
        auto server = StoreServer::create(std::move(*listener), *credentials_);
        if (!server.ok()) return server.status();
        group_.store = std::move(*server);
        log_debug("rank 0 hosts the store at {}:{}", config_.rendezvous_addr, port);
      }
    }
    auto client = StoreClient::connect(std::move(*endpoints), *credentials_, world_.rank, deadline_);
    if (!client.ok()) {
      return {client.status().code(),
              fmt::format("rank {} on {} cannot reach the rendezvous (HOROVOD_GLOO_RENDEZVOUS_ADDR): {}", world_.rank,
                          world_.host, client.status().message())};
    }
    store_ = std::move(*client);
    return {};
  }

  // The other leaders read this while they wait for this host.
  void tell_other_hosts(const Status& failure) {
    deadline_ = Clock::now() + kLastWord;
    if (!open_store().ok()) return;
    Bytes text;
    Encoder out(text);
    out.text(failure.message());
    encode(out, failure.origin());
    (void)store_->set(failure_key(world_.generation, world_.cross_rank), text, deadline_);
  }

  Result<Bytes> meet_leaders(HostMeeting& met) {
    if (Status status = open_store(); !status.ok()) return status;
    HostRecord own{.index = world_.cross_rank,
                   .name = world_.host,
                   .machine = read_machine(),
                   .world_size = world_.size,
                   .hosts = world_.cross_size,
                   .addresses = acceptor_->endpoints(),
                   .ranks = {},
                   .knobs = shared_knobs(config_, Scope::in_world)};
    for (size_t local = 0; local < met.pids.size(); local++) {
      own.ranks.push_back({group_.host.world_ranks[local], met.pids[local], met.arrived[local].port,
                           std::move(met.arrived[local].cores)});
    }
    Bytes record;
    Encoder out(record);
    encode(out, {own});
    leaders_ = std::make_unique<LeadersMeeting>(std::move(own), world_.generation, *credentials_, *store_, *acceptor_,
                                                deadline_, interrupt_);
    leaders_->connect();
    return leaders_->agree(
        std::move(record), [](Bytes& all, ByteView one) { append_hosts(all, one); },
        [](Bytes all) -> Result<Bytes> {
          Decoder in(all);
          auto hosts = decode_hosts(in);
          if (!hosts.ok()) return hosts.status();
          if (Status status = sort_and_check(*hosts); !status.ok()) return status;
          if (Status status = hvd::agree(*hosts); !status.ok()) return status;
          Bytes table;
          Encoder table_out(table);
          encode(table_out, *hosts);
          return table;
        });
  }

  static void append_hosts(Bytes& all, ByteView one) {
    Decoder in_all(all), in_one(one);
    auto hosts = decode_hosts(in_all), more = decode_hosts(in_one);
    if (!hosts.ok() || !more.ok()) return all.clear();  // malformed
    hosts->insert(hosts->end(), more->begin(), more->end());
    all.clear();
    Encoder out(all);
    encode(out, *hosts);
  }

  // ---- between a leader and its host's ranks ----

  Result<Bytes> from_leader() {
    auto parcel = receive_parcel(group_.host.sockets.front(), deadline_ + kPatience, interrupt_);
    if (!parcel.ok()) {
      return Status(Code::peer_lost, fmt::format("local rank 0 of {} went away before the world formed", world_.host));
    }
    return decode_report(*parcel);
  }

  // Leader: sends every rank of the host the result of a step. Returns the step's error.
  Status hand_on(const Result<Bytes>& outcome) {
    if (is_leader()) {
      Bytes parcel = encode_report(outcome);
      for (const UniqueFd& socket : group_.host.sockets) {
        if (socket) (void)send_parcel(socket, parcel);  // the next step or the transport detects a rank that is gone
      }
    }
    return outcome.status();
  }

  Result<Bytes> report(const Result<Bytes>& mine) {
    (void)send_parcel(group_.host.sockets.front(), encode_report(mine));
    return from_leader();
  }

  Result<Bytes> confirm(Result<Bytes> mine) {
    for (size_t local = 1; local < group_.host.sockets.size(); local++) {
      auto parcel = receive_parcel(group_.host.sockets[local], deadline_ + kPatience, interrupt_);
      Result<Bytes> theirs = parcel.ok() ? decode_report(*parcel) : Result<Bytes>(gone(local));
      if (mine.ok() && !theirs.ok()) mine = std::move(theirs);
    }
    return leaders_->agree(
        std::move(mine), [](Bytes&, ByteView) {},
        [this](const Bytes&) -> Result<Bytes> {
          leaders_->clear_store();  // before any rank continues
          return Bytes();
        });
  }

  Status gone(size_t local) const {
    size_t rank = static_cast<size_t>(group_.host.world_ranks[local]);
    const RankPlace& place = group_.host.places[rank];
    return {Code::peer_lost,
            fmt::format("{} is gone before the world formed", group_.host.rank_names[rank]),
            {.kind = OriginKind::lost, .rank = static_cast<int32_t>(rank), .host = place.host, .pid = place.pid}};
  }

  // ---- with the table ----

  Status take_table(const Bytes& table) {
    Decoder in(table);
    auto hosts = decode_hosts(in);
    if (!hosts.ok()) return hosts.status();
    group_.hosts = std::move(*hosts);
    group_.is_homogeneous = is_homogeneous(group_.hosts);
    group_.host_of_rank.resize(static_cast<size_t>(world_.size));
    for (const HostRecord& host : group_.hosts) {
      for (size_t local = 0; local < host.ranks.size(); local++) {
        size_t rank = static_cast<size_t>(host.ranks[local].rank);
        group_.host_of_rank[rank] = host.index;
        group_.host.rank_names[rank] = rank_name(host, local);
        group_.host.places[rank] = {host.name, host.ranks[local].pid};
      }
    }
    size_t own = static_cast<size_t>(group_.host_of_rank[static_cast<size_t>(world_.rank)]);
    group_.crowded = group_.hosts[own].crowded;
    return {};
  }

  Status open_connections() {
    DialerSettings settings{.rank = world_.rank,
                            .generation = world_.generation,
                            .streams = config_.tcp_streams > 0 ? config_.tcp_streams : kStreamsToTry,
                            .timeout = std::max<Duration>(deadline_ - Clock::now(), std::chrono::seconds(1)),
                            .options = data_options(),
                            .congestion = config_.tcp_congestion};
    std::vector<Accepted> early;
    if (leaders_) early = leaders_->take_early();
    auto dialer = Dialer::create(std::move(acceptor_), std::move(early), group_.hosts, *credentials_, settings);
    if (!dialer.ok()) return dialer.status();
    group_.dialer = std::move(*dialer);
    for (int32_t peer : usual_peers(group_.hosts, world_.rank)) group_.dialer->open(peer, Clock::now());
    while (group_.dialer->is_busy()) {
      auto opened = group_.dialer->poll(Clock::now());
      if (!opened) {
        pollfd wanted[] = {{.fd = group_.dialer->descriptor(), .events = POLLIN, .revents = 0},
                           {.fd = interrupt_, .events = POLLIN, .revents = 0}};
        ::poll(wanted, 2, -1);  // the dialer has its own deadlines
        if (wanted[1].revents != 0) return was_interrupted();
        continue;
      }
      if (!opened->stripes.ok()) {
        return {opened->stripes.status().code(), fmt::format("{}: {}", own_name(), opened->stripes.status().message()),
                opened->stripes.status().origin()};
      }
      group_.streams.emplace_back(opened->peer, std::move(*opened->stripes));
    }
    return {};
  }

  const std::string& own_name() const { return group_.host.rank_names[static_cast<size_t>(world_.rank)]; }

  void take_links() {
    group_.dialer->be_patient(seconds(std::max(config_.start_timeout, 1.0)));
    if (!leaders_) return;
    group_.parent = leaders_->take_parent();
    group_.children = leaders_->take_children();
    ControlLinkSettings limits{.heartbeat = seconds(config_.heartbeat_time), .silence = seconds(config_.silence_time)};
    TimePoint now = Clock::now();
    if (group_.parent) group_.parent->set_limits(limits, now);
    for (auto& [host, link] : group_.children) {
      const HostRecord& child = group_.hosts[static_cast<size_t>(host)];
      link->set_peer(rank_name(child, 0), leader_of(child));
      link->set_limits(limits, now);
    }
  }

  const World& world_;
  const Config& config_;
  int interrupt_;
  TimePoint deadline_;
  std::optional<Credentials> credentials_;
  WorldGroup group_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unique_ptr<StoreClient> store_;
  std::unique_ptr<LeadersMeeting> leaders_;
};

}  // namespace

Result<WorldGroup> form_world(const World& world, const Config& config, UniqueFd memory, int interrupt) {
  WorldMeeting meeting(world, config, interrupt);
  if (world.local_size == world.size) return meeting.meet_alone(std::move(memory));
  return meeting.meet(std::move(memory));
}

std::vector<int32_t> usual_peers(const std::vector<HostRecord>& hosts, int32_t rank) {
  size_t count = hosts.size(), host = 0, place = 0;
  for (size_t h = 0; h < count; h++) {
    for (size_t local = 0; local < hosts[h].ranks.size(); local++) {
      if (hosts[h].ranks[local].rank == rank) host = h, place = local;
    }
  }
  std::set<size_t> others{(host + 1) % count, (host + count - 1) % count};
  for (size_t bit = 1; bit < count; bit *= 2) {
    if ((host ^ bit) < count) others.insert(host ^ bit);
  }
  others.erase(host);
  std::vector<int32_t> peers;
  for (size_t other : others) {
    if (place < hosts[other].ranks.size()) peers.push_back(hosts[other].ranks[place].rank);
  }
  return peers;
}

}  // namespace hvd
