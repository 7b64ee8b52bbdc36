// Decides for a job which workers run where, which are in which generation, and when it ends. A pure state machine:
// events and the time are inputs, actions are outputs; the launcher carries them out (src/launcher/job). A static job
// is one generation that is known from the start and never replaced.
//
//   Driver driver(settings, now);                          // check(settings) was ok
//   driver.on(HostsDiscovered{{{"a", 2}}}, now, actions);  // carry out the actions in order, then wait for an event
//   ... at driver.next_timer() at the latest:              driver.on(Timer{}, now, actions);
//   ... until a Finish action:                             driver.finished()
//
// The same events at the same times give the same actions. Every decision of an elastic job is logged with one Say.
// docs/elastic.md has the picture; the rules are in driver.cc (what an event changes), rules.cc (what follows) and
// static_rules.cc (what follows in a static job).
// Thread rule: one caller at a time.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "elastic/events.h"
#include "elastic/host_ledger.h"
#include "elastic/settings.h"
#include "elastic/worker.h"

namespace hvd::elastic {

class Driver {
 public:
  Driver(const Settings& settings, TimePoint now);

  // Appends to `actions`. `now` never goes back. Events of workers that no longer exist are ignored.
  void on(const Event& event, TimePoint now, std::vector<Action>& actions);

  TimePoint next_timer() const { return timer_; }  // kNever: only an event changes the state
  // What the driver is waiting for; empty while a generation runs and nothing is missing.
  const std::string& waiting_for() const { return waiting_for_; }
  bool finished() const { return phase_ == Phase::finished; }
  Generation generation() const { return generation_; }  // 0: none yet
  int resets() const;                                    // generations after the first

 private:
  enum class Phase { running, finishing, failing, finished };

  // What an event changes (driver.cc).
  void heard(const HostsDiscovered& event);
  void heard(const WorkerReady& event);
  void heard(const WorkerExited& event);
  void heard(const WorkerReported& event);
  void heard(const WorkerLeaving& event);
  void heard(const StartFailed& event);
  void heard(const HostLost& event);
  void heard(const StopJob& event);
  void heard(const Timer&) {}
  void accuse(const Worker& accuser, int rank);
  void lost(const Worker& worker, const std::string& how);  // it failed on its own
  void remove(WorkerId id);
  void add_reason(std::string reason);

  // What follows from the state and the time (rules.cc): applied until the state no longer changes.
  void settle();
  void end_overdue();
  void dismiss_unplaced();
  void start_missing();
  void announce_changes();
  void announce(const std::vector<Worker*>& removed, const std::vector<Worker*>& joining);
  TimePoint gathers_until(const Worker& first) const;
  void check_state_is_left();
  void end_finishing();
  void end_failing();

  // The same for a static job (static_rules.cc).
  void settle_static();
  void start_all();
  void note_failure(std::string failure);  // the job ends with this failure, once the cause is known
  void stop_all();

  // When and with whom the next generation starts (forming.cc).
  void form();
  void form_first();
  void form_next();
  bool waits_for_members();
  std::vector<const Worker*> choose_members() const;
  void assign(std::vector<const Worker*> members);
  void wait(std::string what) { wait(std::move(what), settings_.elastic_timeout); }
  void wait(std::string what, Duration limit);  // fails the job when the wait exceeds `limit`
  Duration time_to_come() const;                // time allowed for a started worker to report
  std::string what_is_missing(int needed) const;

  // Decisions.
  void leave(Worker& worker, std::string reason);
  void stop(Worker& worker);
  void fail(std::string reason, int exit_code = 1);
  void say(LogLevel level, std::string text);
  template <class Kind>
  void act(Kind action) {
    actions_.emplace_back(std::move(action));
    changed_ = true;
  }
  bool is_due(TimePoint time);  // if not, the timer is set to this time

  Worker* find(WorkerId id);
  bool is_member(const Worker& worker) const;           // of the current generation
  bool is_late(const Worker& worker) const;             // has not returned from an earlier one
  bool is_whole() const;                                // all its members are running
  bool is_last_with_state(const Worker& worker) const;  // and another worker can take the state over
  bool is_reset_left() const;
  int count_usable() const;  // without late workers: their slots may be used for others
  int limit() const;         // of workers

  Settings settings_;
  HostLedger hosts_;
  std::vector<Worker> workers_;    // whose processes may be running, by id
  std::vector<WorkerId> members_;  // of the current generation by rank, including those that are gone
  Phase phase_ = Phase::running;
  Generation generation_{0};
  uint64_t last_id_ = 0;
  double last_timestamp_ = 0;
  int exit_code_ = 0;

  std::vector<std::string> reasons_;   // why the current generation must be replaced
  std::vector<std::string> failures_;  // of its members, or of any worker before the first
  std::string last_failure_;
  std::optional<TimePoint> complete_since_;  // np slots are listed, and there was no generation yet
  std::optional<TimePoint> regroup_since_;   // the first member has asked again
  std::optional<TimePoint> waiting_since_;   // for something that the elastic timeout limits
  TimePoint finish_by_ = kNever;
  bool said_reset_limit_ = false;
  std::set<WorkerId> awaited_;              // of a static job: running workers that are expected to end
  std::optional<TimePoint> failing_since_;  // its first failure

  // For the current event.
  TimePoint now_;
  bool changed_ = false;  // by a rule: all rules are applied again
  bool waits_ = false;
  std::vector<Action> actions_;

  TimePoint timer_ = kNever;
  std::string waiting_for_;
};

}  // namespace hvd::elastic
