// The launcher's lines to the workers of an elastic job (rendezvous/membership.h is the other side). Workers connect to
// the port of the store, whose thread hands the connections over. Thread rule: one thread, except door(), which any
// thread may call; an event loop drives it: add_to(), wait, look().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/processes/poll_set.h"
#include "net/acceptor.h"
#include "net/framed.h"
#include "rendezvous/elastic_messages.h"

namespace hvd::launcher {

class LineEvents {
 public:
  virtual void on_ready(int worker, const WorkerReady& ready) = 0;
  virtual void on_leaving(int worker, const WorkerLeaves& leaves) = 0;
  virtual void on_line_lost(int worker, std::string_view reason) = 0;

 protected:
  ~LineEvents() = default;
};

class WorkerLines {
 public:
  static Result<std::unique_ptr<WorkerLines>> create();

  // The store passes elastic connections to this function. It may outlive this object.
  std::function<void(Accepted)> door() const;

  void send(int worker, const ElasticMessage& message);  // ignored if the worker has no line
  void close(int worker) { lines_.erase(worker); }
  void add_to(PollSet& set);
  void look(LineEvents& events);

 private:
  struct Reception {
    std::mutex mutex;
    std::vector<Accepted> waiting;  // guarded by mutex
    UniqueFd bell;
  };

  explicit WorkerLines(std::shared_ptr<Reception> reception) : reception_(std::move(reception)) {}
  void welcome();
  Status listen_to(int worker, FramedStream& line, LineEvents& events);

  std::shared_ptr<Reception> reception_;
  std::map<int, FramedStream> lines_;
};

}  // namespace hvd::launcher
