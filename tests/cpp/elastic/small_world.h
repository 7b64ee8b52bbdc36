// A driver with a few hosts and processes around it that behave as real ones do: they start, ask, work, notice that
// their world is broken, die, hang, leave. What happens next is chosen from outside, one move at a time. Copyable, so
// that all moves can be tried from one point.
#pragma once

#include <random>

#include "elastic/checker.h"

namespace hvd::elastic {

enum class Kind { list, ask, accuse, succeed, fail, kill, announce_leave, start_fails, lose, hang, pass };

struct Move {
  Kind kind = Kind::pass;
  uint64_t target = 0;  // id of a process, or number of a host
  int value = 0;        // slots, or a rank
};

inline std::string text_of(const Move& move) {
  const char* names[] = {"list",  "ask",         "accuse", "succeed", "fail", "kill",
                         "leave", "start_fails", "lose",   "hang",    "pass"};
  return fmt::format("{} {} {}", names[static_cast<int>(move.kind)], move.target, move.value);
}

class SmallWorld {
 public:
  SmallWorld(Settings settings, std::vector<int> slots)
      : driver_(settings, TimePoint(seconds(1000))), checker_(settings), slots_(slots), listed_(slots.size(), 0) {}

  struct Process {
    uint64_t id = 0;
    std::string host;
    enum { starting, asking, working } state = starting;
    bool hung = false, to_leave = false, to_stop = false, going = false;
    bool cut_off = false;  // the driver has given up its host
  };

  const std::vector<Process>& processes() const { return processes_; }  // that live
  const std::string& complaint() const { return checker_.complaint(); }
  const Driver& driver() const { return driver_; }
  TimePoint now() const { return now_; }
  uint64_t events() const { return events_; }
  bool can_go_on() const { return complaint().empty() && !driver_.finished(); }

  bool is_broken() const { return working_members() != members_.size(); }
  // It has a reason to ask: the first place, a broken world, a notice.
  bool wants_to_ask(const Process& each) const {
    if (each.hung || each.to_stop || each.to_leave) return false;
    if (each.state == Process::starting) return true;
    if (each.state == Process::asking) return false;
    return notified_ || is_broken() || each.cut_off || !is_member(each.id);
  }

  // Everything that may happen now and makes a difference.
  std::vector<Move> moves() const {
    std::vector<Move> moves;
    for (size_t host = 0; host < slots_.size(); host++) {
      for (int slots = 0; slots <= slots_[host]; slots++) {
        if (slots != listed_[host]) moves.push_back({Kind::list, host, slots});
      }
    }
    std::set<std::string> hosts;
    for (const Process& each : processes_) {
      if (wants_to_ask(each)) moves.push_back({Kind::ask, each.id});
      if (each.to_stop || each.to_leave) {
        moves.push_back({Kind::kill, each.id});
        continue;
      }
      if (each.state == Process::starting) moves.push_back({Kind::start_fails, each.id});
      if (each.state == Process::working) moves.push_back({Kind::succeed, each.id});
      moves.push_back({Kind::fail, each.id});
      if (!each.going && !each.cut_off) moves.push_back({Kind::announce_leave, each.id});
      if (!each.hung && each.state != Process::asking) moves.push_back({Kind::hang, each.id});
      if (!each.cut_off) hosts.insert(each.host);
    }
    for (const std::string& host : hosts) moves.push_back({Kind::lose, static_cast<uint64_t>(host[0] - 'a')});
    if (driver_.next_timer() != kNever) moves.push_back({Kind::pass});
    return moves;
  }

  void make(const Move& move) {
    Process* process = find(move.target);
    switch (move.kind) {
      case Kind::list: listed_[move.target] = move.value; return tell_hosts();
      case Kind::ask:
      case Kind::accuse: {
        process->state = Process::asking;
        std::optional<int> rank;
        if (move.kind == Kind::accuse) rank = move.value;
        return tell(WorkerReady{WorkerId{move.target}, rank});
      }
      case Kind::succeed: return end(move.target, {.id = WorkerId{move.target}});
      case Kind::fail: return end(move.target, {.id = WorkerId{move.target}, .code = 1});
      case Kind::kill: return end(move.target, {.id = WorkerId{move.target}, .signal = 9});
      case Kind::announce_leave: process->going = true; return tell(WorkerLeaving{WorkerId{move.target}, "SIGTERM"});
      case Kind::start_fails: erase(move.target); return tell(StartFailed{WorkerId{move.target}, "refused"});
      case Kind::lose: {
        std::string host = name(move.target);
        for (Process& each : processes_) each.cut_off |= each.host == host;
        return tell(HostLost{host, "cut off"});
      }
      case Kind::hang: process->hung = true; return;
      case Kind::pass:
        now_ = move.value > 0 ? std::min(driver_.next_timer(), now_ + std::chrono::milliseconds(move.value))
                              : driver_.next_timer();
        return tell(Timer{});
    }
  }

  // No more faults. Workers that can ask do so, workers that were told to end do, time passes.
  void calm_down() {
    for (int steps = 0; steps < 2000 && can_go_on(); steps++) {
      std::optional<Move> move = next_calm_move();
      if (!move) return;
      make(*move);
    }
    checker_.expect(!can_go_on(), "it does not come to rest");
  }

  // The final state: the job has ended, or a complete generation is running with all workers; a hanging process may be
  // missing, and then waiting_for() names it.
  std::string check_calm() {
    if (!complaint().empty() || driver_.finished()) return complaint();
    bool hangs = std::any_of(processes_.begin(), processes_.end(), [](const Process& each) { return each.hung; });
    if (hangs && !driver_.waiting_for().empty()) return "";
    if (is_broken()) return "the generation stays broken";
    for (const Process& each : processes_) {
      if (each.state == Process::asking && !each.hung) return "a worker asks for ever";
    }
    return "";
  }

 private:
  std::string name(uint64_t host) const { return std::string(1, static_cast<char>('a' + host)); }
  Process* find(uint64_t id) {
    auto is_it = [&](const Process& each) { return each.id == id; };
    auto process = std::find_if(processes_.begin(), processes_.end(), is_it);
    return process == processes_.end() ? nullptr : &*process;
  }
  void erase(uint64_t id) {
    std::erase_if(processes_, [&](const Process& each) { return each.id == id; });
  }
  bool is_member(uint64_t id) const { return std::find(members_.begin(), members_.end(), id) != members_.end(); }
  size_t working_members() const {
    auto works = [&](const Process& each) {
      return each.state == Process::working && !each.cut_off && is_member(each.id);
    };
    return static_cast<size_t>(std::count_if(processes_.begin(), processes_.end(), works));
  }

  std::optional<Move> next_calm_move() const {
    for (const Process& each : processes_) {
      if (each.to_stop) return Move{Kind::kill, each.id};
      if (each.to_leave && !each.hung) return Move{Kind::succeed, each.id};
      if (wants_to_ask(each)) return Move{Kind::ask, each.id};
    }
    if (driver_.next_timer() != kNever) return Move{Kind::pass};
    return std::nullopt;
  }

  void tell_hosts() {
    HostsDiscovered event;
    for (size_t host = 0; host < slots_.size(); host++) {
      if (listed_[host] > 0) event.hosts.push_back({name(host), listed_[host]});
    }
    tell(event);
  }
  void end(uint64_t id, const WorkerExited& event) {
    erase(id);
    tell(event);
  }

  void tell(const Event& event) {
    events_++;
    checker_.saw(event, now_);
    actions_.clear();
    driver_.on(event, now_, actions_);
    checker_.saw(actions_, driver_);
    for (const Action& action : actions_) std::visit([&](const auto& each) { obey(each); }, action);
  }

  void obey(const StartWorker& action) { processes_.push_back({.id = number(action.id), .host = action.host}); }
  void obey(const StopWorker& action) {
    if (Process* process = find(number(action.id))) process->to_stop = true;
  }
  void obey(const StopAll&) {}
  void obey(const LeaveWorker& action) {
    if (Process* process = find(number(action.id))) process->to_leave = true;
  }
  void obey(const NotifyWorkers&) { notified_ = true; }
  void obey(const AssignGeneration& action) {
    members_.clear();
    notified_ = false;
    for (const Place& place : action.places) {
      members_.push_back(number(place.id));
      if (Process* process = find(number(place.id))) process->state = Process::working;
    }
  }
  void obey(const Say&) {}
  void obey(const Fail&) {}
  void obey(const Finish&) {}

  Driver driver_;
  Checker checker_;
  std::vector<int> slots_;   // that each host may have
  std::vector<int> listed_;  // and has now
  std::vector<Process> processes_;
  std::vector<uint64_t> members_;
  std::vector<Action> actions_;
  bool notified_ = false;
  TimePoint now_{seconds(1000)};
  uint64_t events_ = 0;
};

}  // namespace hvd::elastic
