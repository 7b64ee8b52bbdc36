#include "launcher/doctor/doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <filesystem>

#include "launcher/agents/remote_host.h"
#include "launcher/doctor/facts.h"
#include "launcher/doctor/findings.h"
#include "launcher/doctor/patient.h"
#include "launcher/fleet/muster.h"
#include "launcher/output/screen.h"
#include "launcher/processes/process.h"
#include "launcher/processes/signals.h"
#include "launcher/workers/crew.h"
#include "launcher/workers/environment.h"
#include "launcher/workers/meeting.h"

namespace hvd::launcher {
namespace {

constexpr Duration kHostSilence = std::chrono::seconds(10);
constexpr Duration kProbeMargin = std::chrono::seconds(2);  // a probe ends on its own before its time limit

// Steps: contact the hosts, start a probe on each that answers, wait, stop the remaining ones, dismiss the agents.
class Doctor {
 public:
  Doctor(const Options& options, std::string program, Signals signals)
      : options_(options),
        program_(std::move(program)),
        signals_(std::move(signals)),
        muster_(options, signals_, screen_) {}

  int run() {
    auto key = key_of_job(options_);
    if (!key.ok()) return failed(key.status());
    Status reached = options_.agents ? await_agents(*key) : call_hosts();
    if (!reached.ok()) return failed(reached);
    stop_signal_ = muster_.stop_signal();
    if (stop_signal_ == 0) {
      auto meeting = contacts_.empty() ? meet_on_this_machine(options_, *key) : meet_on_several_hosts(options_, *key);
      if (!meeting.ok()) return failed(meeting.status());
      probe_hosts(*meeting);
    }
    screen_.set_status("");
    screen_.flush();
    if (stop_signal_ != 0) return 128 + stop_signal_;
    auto findings = judge(exams());
    fmt::print("{}", options_.json ? report_json(exams(), findings) : report_text(exams(), findings));
    return has_failed(findings) ? 1 : 0;
  }

 private:
  static int failed(const Status& status) {
    fmt::print(stderr, "horovodrun: {}\n", status.message());
    return 1;
  }

  // One iteration of an event loop.
  template <class Take>
  void wait(const Take& on_reaped) {
    screen_.add_to(set_);
    signals_.add_to(set_);
    set_.wait();
    screen_.flush();
    signals_.reap(on_reaped);
    for (int signal : signals_.take_stop_signals()) {
      is_hurried_ = stop_signal_ != 0;
      stop_signal_ = stop_signal_ != 0 ? stop_signal_ : signal;
    }
  }

  Status call_hosts() {
    for (const Host& host : options_.hosts) exams_.push_back({.name = host.name, .slots = host.slots});
    Muster::Reached reached = muster_.call(options_.hosts);
    contacts_ = std::move(reached.contacts);
    for (const Unreachable& each : reached.failures) {
      HostExam* exam = find(each.host);
      exam->contact_error = each.reason;
      exam->command = each.command;
    }
    return {};
  }

  Status await_agents(const Key& key) {
    auto contacts = muster_.await_agents(key, muster_.deadline());
    if (!contacts.ok()) return contacts.status();
    contacts_ = std::move(*contacts);
    for (const Contact& contact : contacts_) exams_.push_back({.name = contact.host.name});
    for (size_t missing = contacts_.size(); missing < static_cast<size_t>(*options_.agents); missing++)
      exams_.push_back({.name = fmt::format("agent {}", missing + 1),
                        .contact_error = fmt::format("it did not connect within {:.0f} s (--start-timeout)",
                                                     muster_.start_timeout())});
    return {};
  }

  HostExam* find(const std::string& name) {
    auto exam = std::find_if(exams_.begin(), exams_.end(), [&](const HostExam& one) { return one.name == name; });
    return &*exam;
  }

  void probe_hosts(const Meeting& meeting) {
    std::vector<HostExam*> reached;
    for (HostExam& exam : exams_)
      if (exam.contact_error.empty()) reached.push_back(&exam);
    for (size_t rank = 0; rank < reached.size(); rank++)
      start_probe(*reached[rank], meeting, static_cast<int>(rank), static_cast<int>(reached.size()));
    TimePoint until = muster_.deadline() + kProbeMargin;
    auto is_over = [](const Patient& patient) { return patient.is_over(); };
    while (stop_signal_ == 0 && Clock::now() < until && !all_patients(is_over)) {
      set_.wake_at(until);
      step();
    }
    end_probes();
  }

  void start_probe(HostExam& exam, const Meeting& meeting, int rank, int size) {
    auto contact = std::find_if(contacts_.begin(), contacts_.end(),
                                [&](const Contact& one) { return one.host.name == exam.name; });
    bool is_here = contact == contacts_.end();
    Work work;
    work.command = {"/proc/self/exe", std::string(kProbeOption), program_};  // the horovodrun that runs there
    if (!is_here) work.variables = forwarded_variables(environ, contact->host);
    Variables own = job_variables(options_.variables, meeting);
    own.emplace_back("HOROVOD_START_TIMEOUT", fmt::format("{}", muster_.start_timeout()));
    work.variables.insert(work.variables.end(), own.begin(), own.end());
    Patient& patient = patients_.emplace_back(exam);
    if (is_here) {
      patient.runner = std::make_unique<Crew>(patient, muster_.strangers());
    } else {
      patient.runner = std::make_unique<RemoteHost>(patient, std::move(*contact), kHostSilence);
    }
    patient.runner->set_work(work);
    Slot slot{.host = exam.name, .rank = rank, .size = size, .cross_rank = rank, .cross_size = size};
    patient.runner->start({.worker = rank, .variables = rank_variables(slot)});
  }

  template <class Predicate>
  bool all_patients(const Predicate& predicate) const {
    return std::all_of(patients_.begin(), patients_.end(), predicate);
  }

  void step() {
    auto over = std::count_if(patients_.begin(), patients_.end(), [](const Patient& one) { return one.is_over(); });
    screen_.set_status(fmt::format("horovodrun: examining hosts: {} of {} done", over, patients_.size()));
    for (Patient& patient : patients_) patient.runner->add_to(set_);
    wait([&](pid_t pid, int status) {
      for (Patient& patient : patients_) patient.runner->on_reaped(pid, status);
    });
    for (Patient& patient : patients_) patient.runner->look();
  }

  void end_probes() {
    for (Patient& patient : patients_) {
      patient.give_up(fmt::format("it had not ended after {:.0f} s (--start-timeout)", muster_.start_timeout()));
      patient.runner->stop();
    }
    bool has_killed = false;
    while (!all_patients([](const Patient& patient) { return patient.is_empty(); })) {
      if (is_hurried_ && !std::exchange(has_killed, true))
        for (Patient& patient : patients_) patient.runner->kill();
      step();
    }
    for (Patient& patient : patients_)
      if (!patient.runner->has_left()) patient.runner->leave();
    while (!all_patients([](const Patient& patient) { return patient.runner->has_left(); })) step();
  }

  std::vector<HostExam> exams() const { return {exams_.begin(), exams_.end()}; }

  const Options& options_;
  std::string program_;
  Signals signals_;
  Screen screen_;
  PollSet set_;
  Muster muster_;
  int stop_signal_ = 0;
  bool is_hurried_ = false;     // a second signal arrived
  std::deque<HostExam> exams_;  // addresses are stable
  std::vector<Contact> contacts_;
  std::deque<Patient> patients_;  // addresses are stable
};

}  // namespace

int run_doctor(const Options& options, const std::string& program) {
  adopt_orphans();
  auto signals = Signals::create();
  if (!signals.ok()) {
    fmt::print(stderr, "horovodrun: {}\n", signals.status().message());
    return 1;
  }
  std::error_code error;
  bool is_path = program.find('/') != std::string::npos;
  std::string path = is_path ? std::filesystem::absolute(program, error).string() : program;
  return Doctor(options, path, std::move(*signals)).run();
}

}  // namespace hvd::launcher
