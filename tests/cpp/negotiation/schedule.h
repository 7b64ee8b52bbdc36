// One random schedule against a simple model: ranks submit the same jobs in different orders, process sets come and go,
// messages are delayed arbitrarily on every link of the tree, and still every job ends exactly once on every rank, in
// one order for all. With a time-out, jobs may also fail because ranks were slow, but end they must. A pair of ranks
// carries what it can now and then.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "base/joined.h"
#include "negotiation/fusion.h"
#include "negotiation/messages.h"
#include "negotiation/signature.h"
#include "negotiation/simulation.h"

namespace hvd {

using Key = std::pair<int32_t, std::string>;  // process set, name

struct Job {
  Request request;
  int32_t odd_rank = -1;   // this rank submits another shape: an error for all
  bool on_device = false;  // each rank has its own accelerator
};

enum class Mode { flat, pair, tree, tree_with_timeout };

class Schedule {
 public:
  Schedule(uint32_t seed, Mode mode)
      : random_(seed),
        mode_(mode),
        size_(random_size()),
        settings_(random_settings()),
        ears_{Ear(*this, 0), Ear(*this, 1)} {
    ranks_.resize(static_cast<size_t>(size_));
    for (int32_t rank = 0; rank < size_; rank++) {
      CarriedListener* ear = mode_ == Mode::pair && rank > 0 ? &ears_[static_cast<size_t>(rank)] : nullptr;
      ranks_[static_cast<size_t>(rank)].negotiator = std::make_unique<Negotiator>(size_, ear);
    }
    if (mode_ == Mode::pair) settings_.carried = &ears_[0];
    sets_.push_back(all_ranks());
    grow_tree();
  }

  void run() {
    add_sets();
    int phases = pick(1, 2);
    for (int phase = 0; phase < phases; phase++) {
      bool with_join = pick(0, 1) == 1;
      plan_phase(with_join);
      finish_phase();
      if (testing::Test::HasFatalFailure()) return;
    }
    if (mode_ == Mode::tree_with_timeout) return;  // a barrier may fail, too
    for (int i = 0; i < 2; i++) {  // after the second, every rank has acknowledged everything but the last message
      for (RankState& rank : ranks_) rank.todo.push_back({{barrier()}});
      finish_phase();
    }
    EXPECT_EQ(root_->next_deadline(), kNever) << "something is still pending";
    for (const RankState& rank : ranks_) EXPECT_EQ(rank.log, ranks_[0].log) << "another order of plans";
    expect_equal_caches();
  }

  int carried() const { return carried_; }  // how often both had

 private:
  using Batch = std::vector<Job>;  // announced together: a group

  struct Links {
    size_t parent = 0;  // the node above; 0: the root
    std::deque<Bytes> up, down;
  };

  struct Node : Links {
    std::unique_ptr<Aggregator> aggregator;  // null: the root
    int32_t leader = 0;
  };

  // Records what was carried, for a rank.
  struct Ear final : CarriedListener {
    Ear(Schedule& owner, int32_t index) : schedule(owner), rank(index) {}
    void on_carried(const Request& request, ByteView theirs) override {
      schedule.finish_carried(rank, request, theirs);
    }
    Schedule& schedule;
    int32_t rank;
  };

  struct RankState : Links {
    std::unique_ptr<Negotiator> negotiator;
    std::vector<Batch> todo;
    std::map<Key, Job> pending;
    std::map<Key, uint8_t> uses;  // of each name
    bool joined = false;
    std::set<int32_t> removed;  // process sets that it has seen removed
    std::vector<std::string> log;
  };

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  template <class Value>
  Value one_of(std::initializer_list<Value> values) {
    return values.begin()[pick(0, static_cast<int>(values.size()) - 1)];
  }

  int32_t random_size() {
    if (mode_ == Mode::pair) return kRanksThatCarry;
    return mode_ == Mode::flat ? pick(1, 6) : pick(2, 10);
  }

  CoordinatorSettings random_settings() {
    CoordinatorSettings settings;
    settings.cache_capacity = one_of<size_t>({0, 1, 3, 1024});
    settings.tuning.fusion_threshold = one_of<int64_t>({0, 64, 300, 1 << 20});
    settings.tuning.cycle_time_ms = one_of({0.0, 0.0, 5.0});
    settings.disable_group_fusion = chance(30);
    settings.stall_check = false;
    if (mode_ == Mode::tree_with_timeout) settings.collective_timeout = std::chrono::milliseconds(pick(30, 1000));
    return settings;
  }

  // Hosts of one to three ranks, or one host.
  void grow_tree() {
    Hosts hosts;
    for (int32_t rank = 0; rank < size_; rank++) {
      bool is_full = hosts.empty() || hosts.back().size() == 3 || chance(50);
      if (is_full && (mode_ != Mode::flat || hosts.empty())) hosts.emplace_back();
      hosts.back().push_back(rank);
    }
    int32_t fan_out = pick(1, 3);
    AggregatorSettings settings{.hold = std::chrono::milliseconds(one_of({5, 20, 200}))};
    if (mode_ != Mode::tree_with_timeout && chance(30)) settings.hold = Duration::max();
    std::vector<size_t> node_of;  // by host: its own, or if it has a single rank below, that of its parent
    for (int32_t host = 0; host < static_cast<int32_t>(hosts.size()); host++) {
      auto below = ranks_below(host, hosts, fan_out);
      int32_t parent = place_of_host(host, static_cast<int32_t>(hosts.size()), fan_out).parent;
      size_t above = parent < 0 ? 0 : node_of[static_cast<size_t>(parent)];
      bool has_node = host == 0 || below.size() > 1;
      node_of.push_back(has_node ? nodes_.size() : above);
      for (int32_t rank : hosts[static_cast<size_t>(host)]) ranks_[static_cast<size_t>(rank)].parent = node_of.back();
      if (!has_node) continue;
      Node& node = nodes_.emplace_back();
      node.parent = above;
      node.leader = hosts[static_cast<size_t>(host)].front();
      if (host > 0) node.aggregator = std::make_unique<Aggregator>(size_, below, settings);
      if (host == 0) root_ = std::make_unique<Coordinator>(below, settings_);
    }
  }

  std::vector<int32_t> all_ranks() const {
    std::vector<int32_t> ranks;
    for (int32_t rank = 0; rank < size_; rank++) ranks.push_back(rank);
    return ranks;
  }

  void add_sets() {
    int count = pick(0, 2);
    for (int i = 0; i < count; i++) {
      std::vector<int32_t> members;
      for (int32_t rank = 0; rank < size_; rank++) {
        if (chance(60)) members.push_back(rank);
      }
      if (members.empty() || std::find(sets_.begin(), sets_.end(), members) != sets_.end()) continue;
      for (RankState& rank : ranks_) rank.todo.push_back({{add_set(members)}});
      sets_.push_back(members);
      clock_is_slow_ = true;  // they do not time out
      finish_phase();
      clock_is_slow_ = false;
    }
  }

  Request random_request(const std::string& name) {
    Kind kind = one_of({Kind::allreduce, Kind::allreduce, Kind::allreduce, Kind::allgather, Kind::alltoall,
                        Kind::broadcast, Kind::reducescatter, Kind::barrier});
    Request request = of_kind(kind, name, kind == Kind::barrier ? Shape{} : Shape{pick(1, 3), 4});
    request.dtype = one_of({DType::f32, DType::f32, DType::i64});
    request.prescale = one_of({1.0, 1.0, 1.0, 0.5});
    return request;
  }

  // The jobs of one phase, dealt to the ranks in different orders. Joins come last on each rank.
  void plan_phase(bool with_join) {
    int rounds = mode_ == Mode::pair ? pick(2, 8) : pick(1, 3);
    for (int round = 0; round < rounds; round++) {
      for (int32_t set = 0; set < static_cast<int32_t>(sets_.size()); set++) {
        if (!removed_.contains(set)) deal(round_of_jobs(set), sets_[static_cast<size_t>(set)]);
      }
    }
    for (int32_t set = 1; set < static_cast<int32_t>(sets_.size()); set++) {
      if (removed_.contains(set) || chance(60)) continue;
      removed_.insert(set);
      Request removal = remove_set(set);
      removal.name = fmt::format("remove.{}", set);
      for (RankState& rank : ranks_) {
        size_t place = static_cast<size_t>(pick(0, static_cast<int>(rank.todo.size())));
        rank.todo.insert(rank.todo.begin() + static_cast<ptrdiff_t>(place), Batch{Job{removal}});
      }
    }
    if (!with_join) return;
    for (RankState& rank : ranks_) {
      int extra = pick(0, 4);
      for (int i = 0; i < extra; i++) rank.todo.push_back({{allreduce(fmt::format("extra.{}", i))}});
      rank.todo.push_back({{join()}});
    }
  }

  std::vector<Batch> round_of_jobs(int32_t set) {
    std::vector<Batch> batches;
    for (int i = 0; i < 6; i++) {
      if (chance(50)) batches.push_back({random_job(set, fmt::format("t{}", i))});
    }
    for (int group = 0; group < 2; group++) {
      if (chance(60)) continue;
      uint32_t members = static_cast<uint32_t>(pick(1, 3));
      Batch batch;
      for (uint32_t i = 0; i < members; i++) {
        Job job = random_job(set, fmt::format("g{}.{}", group, i));
        if (job.request.kind == Kind::barrier) job.request.kind = Kind::broadcast;
        if (job.request.kind == Kind::broadcast) job.request.shape = {4};
        job.request = in_group(fmt::format("g{}", group), members, job.request);
        batch.push_back(job);
      }
      batches.push_back(batch);
    }
    return batches;
  }

  Job random_job(int32_t set, const std::string& name) {
    if (mode_ == Mode::pair && chance(75)) return {.request = in_set(set, allreduce(name))};  // again and again
    Job job{.request = in_set(set, random_request(name)), .on_device = chance(30)};
    const std::vector<int32_t>& members = sets_[static_cast<size_t>(set)];
    job.request.root_rank = members.front();
    if (members.size() > 1 && job.request.kind != Kind::barrier && chance(10)) {
      job.odd_rank = members[static_cast<size_t>(pick(0, static_cast<int>(members.size()) - 1))];
    }
    return job;
  }

  void deal(std::vector<Batch> batches, const std::vector<int32_t>& members) {
    for (int32_t member : members) {
      std::shuffle(batches.begin(), batches.end(), random_);
      std::vector<Batch>& todo = ranks_[static_cast<size_t>(member)].todo;
      todo.insert(todo.end(), batches.begin(), batches.end());
    }
  }

  // Random steps until all ranks have nothing to do and nothing pending.
  void finish_phase() {
    for (int step = 0; !is_finished(); step++) {
      ASSERT_LT(step, 100000) << "no progress: " << describe();
      int32_t index = pick(0, size_ - 1);
      Node& node = nodes_[static_cast<size_t>(pick(0, static_cast<int>(nodes_.size()) - 1))];
      switch (pick(0, nodes_.size() == 1 ? 4 : 7)) {
        case 0: submit(index); break;
        case 1: send(index); break;
        case 2: deliver_up(ranks_[static_cast<size_t>(index)], index); break;
        case 3: decide(); break;
        case 4: deliver_down(index); break;
        case 5: flush(node); break;
        case 6: deliver_up(node, node.leader); break;
        case 7: deliver_down(node); break;
      }
      now_ += std::chrono::microseconds(clock_is_slow_ ? 1 : 1000);
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  bool is_finished() const {
    for (const Node& node : nodes_) {
      bool has_more = node.aggregator != nullptr && node.aggregator->next_deadline() <= now_;
      if (has_more || !node.up.empty() || !node.down.empty()) return false;
    }
    return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) {
      return rank.todo.empty() && rank.pending.empty() && rank.up.empty() && rank.down.empty() &&
             rank.negotiator->outgoing().empty();
    });
  }

  std::string describe() const {
    std::string text;
    for (const RankState& rank : ranks_) {
      text += fmt::format("\nrank with {} to do, joined {}, pending:", rank.todo.size(), rank.joined);
      for (const auto& [key, job] : rank.pending) text += fmt::format(" {}/{}", key.first, key.second);
      if (!rank.todo.empty()) text += " next: " + rank.todo.front().front().request.name;
    }
    return text;
  }

  void submit(int32_t index) {
    RankState& rank = ranks_[static_cast<size_t>(index)];
    std::erase_if(rank.todo, [&](const Batch& batch) {
      const Request& request = batch.front().request;
      return request.kind != Kind::remove_process_set && rank.removed.contains(request.process_set);
    });
    if (rank.todo.empty() || rank.joined) return;
    // Any job may overtake another of the next few whose names are free, but not a join.
    size_t choice = static_cast<size_t>(pick(0, std::min(2, static_cast<int>(rank.todo.size()) - 1)));
    const Batch& batch = rank.todo[choice];
    if (batch.front().request.kind == Kind::join && choice > 0) return;
    for (size_t i = 0; i <= choice; i++) {
      for (const Job& earlier : rank.todo[i]) {
        if (rank.pending.contains(key_of(earlier.request))) return;
      }
    }
    for (size_t i = 0; i < choice; i++) {
      if (shares_name(rank.todo[i], batch)) return;
    }
    for (Job job : batch) {
      if (job.odd_rank == index) job.request.shape.push_back(2);
      if (job.on_device) job.request.device = index % 3;
      uint8_t use = ++rank.uses[key_of(job.request)];
      bool carries = mode_ == Mode::pair && can_be_carried(job.request) && chance(70);
      rank.negotiator->announce(job.request, carries ? tensor_of(index, job.request, use) : Bytes());
      rank.joined = rank.joined || job.request.kind == Kind::join;
      latest_.insert_or_assign(key_of(job.request), job.request);
      rank.pending.emplace(key_of(job.request), job);
    }
    rank.todo.erase(rank.todo.begin() + static_cast<ptrdiff_t>(choice));
  }

  // Made of who carries it and for how many times.
  static Bytes tensor_of(int32_t rank, const Request& request, uint8_t use) {
    Bytes data(bytes_of(request), std::byte{use});
    data.front() = static_cast<std::byte>(rank);
    return data;
  }

  void finish_carried(int32_t index, const Request& request, ByteView theirs) {
    RankState& rank = ranks_[static_cast<size_t>(index)];
    auto found = rank.pending.find(key_of(request));
    ASSERT_NE(found, rank.pending.end()) << "rank " << index << " did not submit " << request.name;
    EXPECT_LT(found->second.odd_rank, 0) << request.name;
    Bytes expected = tensor_of(1 - index, found->second.request, rank.uses[found->first]);
    EXPECT_TRUE(std::equal(theirs.begin(), theirs.end(), expected.begin(), expected.end())) << request.name;
    rank.pending.erase(found);
    carried_++;
  }

  static Key key_of(const Request& request) { return {gathering_set(request), request.name}; }
  static bool shares_name(const Batch& a, const Batch& b) {
    for (const Job& first : a) {
      for (const Job& second : b) {
        if (key_of(first.request) == key_of(second.request)) return true;
      }
    }
    return false;
  }

  void send(int32_t index) {
    RankState& rank = ranks_[static_cast<size_t>(index)];
    ByteView bytes = rank.negotiator->outgoing();
    if (bytes.empty()) return;
    rank.up.emplace_back(bytes.begin(), bytes.end());
    rank.negotiator->clear_outgoing();
    rank.negotiator->finish_offered();
  }

  void flush(Node& node) {
    Bytes message;
    if (node.aggregator != nullptr && node.aggregator->flush(now_, message)) node.up.push_back(message);
  }

  void deliver_up(Links& from, int32_t rank) {
    if (from.up.empty()) return;
    Aggregator* above = nodes_[from.parent].aggregator.get();
    const Bytes& message = from.up.front();
    Status status =
        above == nullptr ? root_->receive(Rank{rank}, message, now_) : above->receive(Rank{rank}, message, now_);
    ASSERT_TRUE(status.ok()) << status.message();
    from.up.pop_front();
  }

  void decide() {
    Bytes message;
    if (root_->decide(now_, message)) send_down(0, message);
    root_->finish_offered(now_);
  }

  void send_down(size_t parent, const Bytes& message) {
    for (size_t i = 1; i < nodes_.size(); i++) {
      if (nodes_[i].parent == parent) nodes_[i].down.push_back(message);
    }
    for (RankState& rank : ranks_) {
      if (rank.parent == parent) rank.down.push_back(message);
    }
  }

  void deliver_down(Node& node) {
    if (node.down.empty()) return;
    Status status = node.aggregator->follow(node.down.front(), now_);
    ASSERT_TRUE(status.ok()) << status.message();
    send_down(static_cast<size_t>(&node - nodes_.data()), node.down.front());
    node.down.pop_front();
  }

  void deliver_down(int32_t index) {
    RankState& rank = ranks_[static_cast<size_t>(index)];
    if (rank.down.empty()) return;
    std::vector<Decision> decisions;
    Status status = rank.negotiator->receive(rank.down.front(), decisions);
    ASSERT_TRUE(status.ok()) << status.message();
    rank.down.pop_front();
    for (const Decision& decision : decisions) {
      const Plan& plan = std::get<Plan>(decision);
      expect_well_fused(plan);
      for (const AgreedRequest& tensor : plan.tensors) finish(index, plan, *tensor);
      rank.log.push_back(fmt::format("{} {}", joined(names_of(plan), ","), plan.error_text));
    }
  }

  void finish(int32_t index, const Plan& plan, const Request& tensor) {
    RankState& rank = ranks_[static_cast<size_t>(index)];
    if (tensor.kind == Kind::remove_process_set && plan.error == Code::ok) rank.removed.insert(tensor.process_set);
    auto found = rank.pending.find(key_of(tensor));
    if (found == rank.pending.end() && plan.error != Code::ok) return;  // for those that were late
    if (found == rank.pending.end()) {
      const std::vector<int32_t>& members = sets_.at(static_cast<size_t>(tensor.process_set));
      bool is_member = std::find(members.begin(), members.end(), index) != members.end();
      bool goes_on = tensor.kind == Kind::allreduce || tensor.kind == Kind::barrier;
      EXPECT_TRUE(!is_member || (rank.joined && goes_on && tensor.process_set == kWorldSet))
          << "rank " << index << " did not submit " << tensor.name;
      return;
    }
    const Job& job = found->second;
    if (mode_ != Mode::tree_with_timeout && !removed_.contains(tensor.process_set)) {
      EXPECT_EQ(plan.error, job.odd_rank < 0 ? Code::ok : Code::precondition) << tensor.name << ": " << plan.error_text;
    }
    // After a time-out, ranks may meet in different uses of a name, and differ in what does not matter to the kind.
    if (plan.error == Code::ok && mode_ != Mode::tree_with_timeout) {
      EXPECT_TRUE(same_signature(tensor, job.request)) << tensor.name;
    }
    rank.pending.erase(found);
    if (tensor.kind != Kind::join) return;
    rank.joined = false;
    rank.uses.clear();  // the others may have gone on without this rank, or it without them
  }

  void expect_well_fused(const Plan& plan) {
    uint64_t bytes = 0;
    for (const AgreedRequest& tensor : plan.tensors) {
      size_t members = sets_.at(static_cast<size_t>(tensor->process_set)).size();
      bytes += fused_bytes(*tensor, static_cast<int32_t>(members));
      if (plan.tensors.size() == 1) return;
      EXPECT_TRUE(can_share_plan(plan.first(), *tensor));
      EXPECT_TRUE(!settings_.disable_group_fusion || tensor->group == plan.first().group);
    }
    EXPECT_LE(bytes, static_cast<uint64_t>(settings_.tuning.fusion_threshold));
  }

  // Every rank would write the same bytes for the same request.
  void expect_equal_caches() {
    for (const auto& [key, request] : latest_) {
      Bytes first;
      if (request.device != kHost) continue;  // each rank names its own
      for (RankState& rank : ranks_) {
        rank.negotiator->announce(request);
        ByteView bytes = rank.negotiator->outgoing();
        if (&rank == &ranks_.front()) first.assign(bytes.begin(), bytes.end());
        EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), first.begin(), first.end())) << key.second;
        rank.negotiator->clear_outgoing();
      }
    }
  }

  std::mt19937 random_;
  Mode mode_;
  int32_t size_;
  CoordinatorSettings settings_;
  std::array<Ear, 2> ears_;
  int carried_ = 0;
  std::unique_ptr<Coordinator> root_;
  std::vector<Node> nodes_;  // the root is the first
  std::vector<RankState> ranks_;
  std::vector<std::vector<int32_t>> sets_;
  std::set<int32_t> removed_;  // or about to be
  bool clock_is_slow_ = false;
  std::map<Key, Request> latest_;
  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
};

}  // namespace hvd
