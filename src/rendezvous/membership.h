// A worker's side of an elastic job: one connection to the launcher, which assigns its place in every world and reports
// changes of the hosts. When the connection ends the job is over, and every wait returns that. Callers: the Runtime,
// from init(), and through it the C ABI. Thread rule: any thread; one caller of next_place() at a time. The connection
// has its own thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "net/credentials.h"
#include "net/framed.h"
#include "net/socket.h"
#include "rendezvous/elastic_messages.h"

namespace hvd {

class Membership {
 public:
  // Connects to the launcher before the deadline.
  static Result<std::unique_ptr<Membership>> join(std::vector<Endpoint> launcher, const Credentials& credentials,
                                                  int32_t worker, TimePoint deadline);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  // Reports that this process is ready for the next world, with a reason, and waits for its place there. `lost_rank`:
  // the rank that it found silent; -1: none. Errors: removed: there is no place; peer_lost: the launcher is gone;
  // aborted: the job has failed; timed_out.
  Result<Place> next_place(const std::string& reason, int32_t lost_rank, TimePoint deadline);
  // Readable once the launcher has reported that the last assigned world cannot form.
  int voided() const { return voided_.get(); }
  std::string void_reason() const;

  // timed_out; aborted: there will be no more changes.
  Result<HostsChanged> next_change(TimePoint deadline);
  void stop_waiting();  // for changes

  Status leave(const std::string& reason);

  std::vector<int> descriptors() const { return {frames_.descriptor(), bell_.get(), voided_.get()}; }

 private:
  Membership(std::unique_ptr<Stream> stream, UniqueFd bell, UniqueFd voided);
  void run(const std::stop_token& stop);
  Status exchange();
  void take(ElasticMessage message);
  Status send(const ElasticMessage& message);

  FramedStream frames_;  // used only by the thread
  UniqueFd bell_;        // there is something to send, or the thread must stop
  UniqueFd voided_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable arrived_;
  std::deque<Bytes> outgoing_;
  Generation last_{0};
  std::optional<Place> place_;
  std::optional<Dismissal> dismissal_;
  std::string void_reason_;
  std::deque<HostsChanged> changes_;
  bool is_waiting_ = false;   // for a place
  bool has_stopped_ = false;  // waiting for changes
  Status over_;               // not ok: why the job is over for this process
  std::jthread thread_;
};

}  // namespace hvd
