// The built-in backend: plans on host memory, executed at once on the thread that drives.
// Thread rule: the thread that drives.
#pragma once

#include <functional>
#include <vector>

#include "backends/backend.h"
#include "collectives/collectives.h"

namespace hvd {

class CpuBackend : public Backend {
 public:
  // `collectives_of` returns the collectives of a process set that has this rank.
  explicit CpuBackend(std::function<Collectives&(int32_t process_set)> collectives_of)
      : collectives_of_(std::move(collectives_of)) {}

  std::string_view name() const override { return "cpu"; }
  std::string_view activity(Kind kind) const override;
  bool accepts(const Plan& plan) const override { return plan.first().device == kHost; }
  void run(const Plan& plan, std::span<Operation* const> operations, Done done) override;

 private:
  Status execute(const Plan& plan, std::span<Operation* const> operations);
  Status allreduce(const Request& request, std::span<Operation* const> operations, Collectives& collectives);
  Status allgather(std::span<Operation* const> operations, Collectives& collectives);
  Status broadcast(const Request& request, Operation& operation, Collectives& collectives);
  Status alltoall(Operation& operation, Collectives& collectives);
  Status reducescatter(const Request& request, std::span<Operation* const> operations, Collectives& collectives);
  Status reduce(const Request& request, Operation& operation, Collectives& collectives);
  Status gather(Operation& operation, Collectives& collectives);
  Status scatter(Operation& operation, Collectives& collectives);
  static Status transfer(Operation& operation, Collectives& collectives);
  std::vector<Segments>& scratch(size_t count, std::vector<Segments>& lists);

  std::function<Collectives&(int32_t process_set)> collectives_of_;
  Segments in_, out_;  // reused between plans, so that a steady state allocates nothing
  std::vector<Segments> sent_, received_;
};

// An allreduce of two ranks that already have each other's data; this rank is `position`.
Status combine(Operation& operation, ByteView theirs, int32_t position);

}  // namespace hvd
