// The driver among all short schedules of small worlds, and among many long random ones. A failure prints the moves
// that lead to it, and a random one its seed: the same seed gives the same moves.
#include <random>

#include "elastic/small_world.h"
#include "support/effort.h"

namespace hvd::elastic {
namespace {

// Sanitizers make everything ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
int fewer_moves() { return kSanitized ? 2 : test::full() ? 0 : 1; }
uint64_t least_events() { return kSanitized ? 5'000 : test::full() ? 150'000 : 30'000; }

std::string text_of_path(const std::vector<Move>& path) {
  std::vector<std::string> texts;
  for (const Move& move : path) texts.push_back(text_of(move));
  return joined(texts, ", ");
}

// Tries every sequence of `depth` moves, then lets each world calm down.
class Explorer {
 public:
  // Returns false at the first world that breaks a rule.
  bool explore(const SmallWorld& world, int depth) {
    if (depth == 0 || !world.can_go_on()) return ends_well(world);
    for (const Move& move : world.moves()) {
      SmallWorld next = world;
      path_.push_back(move);
      next.make(move);
      if (!explore(next, depth - 1)) return false;
      path_.pop_back();
    }
    return true;
  }
  uint64_t worlds() const { return worlds_; }

 private:
  bool ends_well(SmallWorld world) {
    worlds_++;
    world.calm_down();
    std::string complaint = world.check_calm();
    if (complaint.empty()) return true;
    ADD_FAILURE() << complaint << " after: " << text_of_path(path_)
                  << "; waiting for: " << world.driver().waiting_for();
    return false;
  }

  std::vector<Move> path_;
  uint64_t worlds_ = 0;
};

struct Small {
  const char* name;
  Settings settings;
  std::vector<int> slots;
  int depth;  // of make soak
};
void PrintTo(const Small& small, std::ostream* out) { *out << small.name; }

class EverySchedule : public testing::TestWithParam<Small> {};

TEST_P(EverySchedule, FromNothing) {
  const Small& small = GetParam();
  SmallWorld world(small.settings, small.slots);
  Explorer explorer;
  EXPECT_TRUE(explorer.explore(world, small.depth - fewer_moves()));
  RecordProperty("worlds", std::to_string(explorer.worlds()));
}

TEST_P(EverySchedule, FromAWorldAtWork) {
  const Small& small = GetParam();
  SmallWorld world(small.settings, small.slots);
  for (size_t host = 0; host < small.slots.size(); host++) world.make({Kind::list, host, small.slots[host]});
  world.calm_down();
  ASSERT_EQ(world.check_calm(), "");
  ASSERT_EQ(world.driver().generation(), Generation{1});
  Explorer explorer;
  EXPECT_TRUE(explorer.explore(world, small.depth - 1 - fewer_moves()));
  RecordProperty("worlds", std::to_string(explorer.worlds()));
}

INSTANTIATE_TEST_SUITE_P(Worlds, EverySchedule,
                         testing::Values(Small{"OneHostTwoSlots", {.np = 2, .min_np = 1}, {2}, 6},
                                         Small{"OneHostTwoSlotsMinimum", {.np = 2, .min_np = 2}, {2}, 6},
                                         Small{"TwoHosts", {.np = 2, .min_np = 1, .max_np = 2}, {1, 1}, 6},
                                         Small{"TwoHostsOneReset", {.np = 1, .min_np = 1, .reset_limit = 1}, {1, 1}, 6},
                                         Small{"TwoHostsFourSlots", {.np = 2, .min_np = 2, .max_np = 3}, {2, 2}, 4},
                                         Small{"ThreeHosts", {.np = 2, .min_np = 2, .max_np = 2}, {1, 1, 1}, 5}),
                         [](const auto& each) { return std::string(each.param.name); });

class RandomWorld {
 public:
  explicit RandomWorld(uint32_t seed) : random_(seed), settings_(settings()), world_(settings_, slots()) {}

  // Returns the violations.
  std::string run(int steps) {
    for (int step = 0; step < steps && world_.can_go_on(); step++) make(choose());
    world_.calm_down();
    return world_.check_calm();
  }

  // The same moves in another world end in the same state.
  bool repeats() {
    SmallWorld again(settings_, slots_);
    for (const Move& move : path_) again.make(move);
    again.calm_down();
    return again.events() == world_.events() && again.now() == world_.now() &&
           again.driver().waiting_for() == world_.driver().waiting_for() &&
           again.driver().generation() == world_.driver().generation();
  }

  const SmallWorld& world() const { return world_; }
  std::string path() const { return text_of_path(path_); }

 private:
  int pick(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }

  Settings settings() {
    Settings settings;
    settings.min_np = pick(1, 3);
    settings.np = settings.min_np + pick(0, 2);
    if (chance(60)) settings.max_np = settings.np + pick(0, 2);
    if (chance(20)) settings.reset_limit = pick(0, 6);
    settings.elastic_timeout = seconds(chance(50) ? 600 : 20);
    settings.back_off = {seconds(0.25), seconds(chance(50) ? 60 : 1)};
    settings.seed = static_cast<uint64_t>(pick(0, 1000));
    steadiness_ = pick(0, 95);
    return settings;
  }
  std::vector<int> slots() {
    slots_.resize(static_cast<size_t>(pick(1, 4)));
    for (int& each : slots_) each = pick(1, 3);
    return slots_;
  }

  // Mostly normal events, so that worlds make progress; the share differs between worlds.
  Move choose() {
    if (chance(2)) return {Kind::pass, 0, pick(1, 3000)};
    if (Move accusation; chance(5) && find_accusation(accusation)) return accusation;
    if (chance(steadiness_)) {
      std::vector<Move> calm;
      for (const auto& each : world_.processes()) {
        if (world_.wants_to_ask(each)) calm.push_back({Kind::ask, each.id});
        if (each.to_stop || each.to_leave) calm.push_back({Kind::kill, each.id});
      }
      if (world_.driver().next_timer() != kNever && chance(30)) calm.push_back({Kind::pass});
      if (!calm.empty()) return any_of(calm);
    }
    Move move = any_of(world_.moves());
    // A success, or the end of the last, is the end of the story: rarely.
    if (move.kind == Kind::succeed && !chance(3)) return {Kind::kill, move.target};
    if (move.kind == Kind::hang && !chance(20)) return {Kind::ask, move.target};  // for no reason
    return move;
  }
  bool find_accusation(Move& move) {
    std::vector<Move> found;
    for (const auto& each : world_.processes()) {
      if (world_.wants_to_ask(each)) found.push_back({Kind::accuse, each.id, pick(-1, 5)});
    }
    if (found.empty()) return false;
    move = any_of(found);
    return true;
  }
  Move any_of(const std::vector<Move>& moves) {
    return moves.empty() ? Move{Kind::list, 0, 1}
                         : moves[static_cast<size_t>(pick(0, static_cast<int>(moves.size()) - 1))];
  }
  void make(const Move& move) {
    path_.push_back(move);
    world_.make(move);
  }

  std::mt19937 random_;
  int steadiness_ = 0;  // percent
  Settings settings_;
  std::vector<int> slots_;
  SmallWorld world_;
  std::vector<Move> path_;
};

class RandomSchedules : public testing::TestWithParam<uint32_t> {};

TEST_P(RandomSchedules, BreakNoRuleAndComeToAnEnd) {
  uint64_t events = 0, generations = 0;
  for (uint32_t seed = GetParam(); events < least_events(); seed += 1000) {
    RandomWorld random(seed);
    std::string complaint = random.run(300);
    ASSERT_EQ(complaint, "") << "seed " << seed << " after: " << random.path()
                             << "; waiting for: " << random.world().driver().waiting_for();
    if (seed / 1000 % 10 == 0) {
      ASSERT_TRUE(random.repeats()) << "seed " << seed << " after: " << random.path();
    }
    events += random.world().events();
    generations += static_cast<uint64_t>(random.world().driver().generation());
  }
  RecordProperty("events", std::to_string(events));
  RecordProperty("generations", std::to_string(generations));
  EXPECT_GT(generations, events / 100) << "worlds that do not get far prove little";
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedules, testing::Range(1u, 9u));

}  // namespace
}  // namespace hvd::elastic
