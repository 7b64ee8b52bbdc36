// Hands what the coordinator sees to the timeline. The coordinator runs inside the driving thread; the timeline may be
// switched by any. Thread rule: the thread that drives.
#pragma once

#include "engine/executor.h"
#include "negotiation/coordinator.h"

namespace hvd {

class Recorder : public NegotiationObserver {
 public:
  explicit Recorder(const Executor& executor) : executor_(executor) {}
  bool is_watching() const override { return executor_.has_timeline(); }
  void on_first_request(const Request& request) override {
    if (auto timeline = executor_.timeline()) {
      timeline->negotiate_start(request.name, request.kind, request.reduce_op == ReduceOp::adasum);
    }
  }
  void on_rank_ready(const Request& request, Rank rank) override {
    if (auto timeline = executor_.timeline()) timeline->negotiate_rank_ready(request.name, index_of(rank));
  }
  void on_agreed(const Request& request) override {
    if (auto timeline = executor_.timeline()) timeline->negotiate_end(request.name);
  }

 private:
  const Executor& executor_;
};

}  // namespace hvd
