// What the launcher knows of a job while it runs: it asks all hosts once a second or so, keeps a short history, serves
// it as a page, as JSON and to `horovodrun --top`, reports where ranks are that others wait for, and gathers everything
// into one file when a job fails.
// Thread rule: one thread, the launcher's event loop: add_to(), wait, look(). Its owner tells it what happens and
// passes its questions on to the hosts.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launcher/command_line/options.h"
#include "launcher/observe/http_server.h"
#include "launcher/processes/poll_set.h"
#include "launcher/workers/host_runner.h"

namespace hvd::launcher {

struct ObservatorySettings {
  std::string command;  // of the job, for people
  int ranks = 0;        // wanted
  std::optional<uint16_t> status_port;
  std::string address = "127.0.0.1";
  std::string dump_folder;  // empty: a private one; "none": nothing is written
};

class Observatory {
 public:
  // Passes a question to all hosts that can answer; returns their names.
  using Ask = std::function<std::vector<std::string>(const ObserveRequest&)>;
  using Say = std::function<void(std::string_view)>;

  Observatory(ObservatorySettings settings, Ask ask, Say say);
  void open();  // the page and the socket for --top; says where

  // ---- what happens in the job ----
  void on_started(int worker, const std::string& host, pid_t pid);
  void on_ended(int worker, std::string_view how);
  void on_output(int worker, std::string_view bytes);
  void on_event(std::string_view text);  // history: hosts and worlds come and go
  void on_observed(const std::string& host, uint64_t id, std::string_view json);
  void on_host_lost(const std::string& host);

  // ---- the dump ----
  // Begins to gather what is known, once for a failure; nothing should be killed before is_gathering() is false.
  void gather(const std::string& reason);
  bool is_gathering() const { return is_gathering_; }
  void dump_now();  // the user asks for it; says where it is
  // "what was seen of the ranks is in /tmp/..; horovodrun --explain FILE tells it", or nothing.
  std::string dump_note() const;

  void add_to(PollSet& set);
  void look();

 private:
  struct Sample {
    double time = 0;                                             // seconds since 1970
    double operations = 0, bytes = 0, waited = 0, lateness = 0;  // since the last one, per second; lateness in seconds
  };
  struct Worker {
    int id = 0;
    std::string host, end;
    pid_t pid = -1;
    nlohmann::json document;  // the newest, as Crew::document() makes it
    std::deque<Sample> samples;
    std::deque<std::string> lines;
    std::string partial;
    // At the last look; cumulative.
    uint64_t finished = 0, stalls = 0;
    double bytes = 0, agreement = 0, agreed = 0, wait = 0;
    bool is_new = true;
  };
  // A question that was asked, and what to do with all its answers.
  struct Question {
    std::set<std::string> hosts;  // that have not answered
    std::vector<nlohmann::json> answers;
    TimePoint give_up = kNever;
    std::function<void(nlohmann::json workers)> then;
  };
  struct Event {
    double time = 0;
    std::string text;
  };

  static constexpr Duration kStacksWait = std::chrono::seconds(4);
  static constexpr int64_t kRingSize = 2000;

  void ask(ObserveRequest request, Duration patience, std::function<void(nlohmann::json)> then);
  void take_round(const nlohmann::json& workers);
  void measure(Worker& worker, double elapsed);
  void measure_lateness();
  void find_stalls();
  void report_stacks(const nlohmann::json& workers, const std::set<int64_t>& ranks);
  void publish();
  nlohmann::json status() const;
  nlohmann::json status_of(const Worker& worker) const;
  HttpReply on_request(const HttpRequest& request, uint64_t from, HttpServer& server, bool is_local);
  void write_dump(const std::string& reason, nlohmann::json workers);
  nlohmann::json dump_of(const std::string& reason, nlohmann::json workers) const;
  Duration period() const;

  const ObservatorySettings settings_;
  const Ask ask_;
  const Say say_;
  const double began_;
  std::string token_;
  std::unique_ptr<HttpServer> page_, control_;
  std::map<int, Worker> workers_;
  std::deque<Event> events_;
  std::map<uint64_t, Question> questions_;
  uint64_t last_question_ = 0;
  TimePoint next_round_{};
  bool is_asking_ = false;  // a round is under way
  double last_round_ = 0;
  bool is_gathering_ = false;  // for a dump, before something is killed
  std::string dump_file_, dump_problem_;
};

// From the command line and the environment. Nothing: HOROVOD_OBSERVE=0.
std::optional<ObservatorySettings> observatory_settings(const Options& options);

}  // namespace hvd::launcher
