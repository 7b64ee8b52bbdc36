// What one hvd_submit handed over: one operation, or a group of them with one handle. Thread rule: see each field.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "model/operation.h"

namespace hvd {

struct Submission {
  int64_t handle = 0;
  std::vector<Operation> operations;  // the driving thread's until done, then the caller's
  std::function<void(const Submission&)> on_done;

  Status status;           // written before `done`
  int32_t unfinished = 0;  // guarded by the mutex of the OperationTable
  std::atomic<bool> done{false};
};

using SubmissionRef = std::shared_ptr<Submission>;

}  // namespace hvd
