#include "engine/operation_table.h"

#include <fmt/core.h>

namespace hvd {

Status OperationTable::add(const SubmissionRef& submission) {
  std::lock_guard lock(mutex_);
  if (!closed_.ok()) return closed_;
  std::vector<Operation>& operations = submission->operations;
  for (size_t i = 0; i < operations.size(); i++) {
    const Request& request = operations[i].request;
    auto [place, is_new] =
        in_flight_.try_emplace(Key{request.process_set, request.name}, Found{submission, &operations[i]});
    if (is_new) continue;
    for (size_t j = 0; j < i; j++) {
      in_flight_.erase(in_flight_.find(KeyView{operations[j].request.process_set, operations[j].request.name}));
    }
    return {
        Code::invalid_argument,
        fmt::format("an operation with the name {} is already in flight; give each operation its own name, or wait for "
                    "the first to finish",
                    request.name)};
  }
  submission->handle = next_handle_++;
  submission->unfinished = static_cast<int32_t>(operations.size());
  handles_.emplace(submission->handle, submission);
  return {};
}

SubmissionRef OperationTable::find(int64_t handle) const {
  std::lock_guard lock(mutex_);
  auto found = handles_.find(handle);
  return found == handles_.end() ? nullptr : found->second;
}

void OperationTable::release(int64_t handle) {
  SubmissionRef submission;  // destroyed after the lock is gone
  std::lock_guard lock(mutex_);
  auto found = handles_.find(handle);
  if (found == handles_.end()) return;
  submission = std::move(found->second);
  handles_.erase(found);
}

OperationTable::Found OperationTable::find(int32_t process_set, std::string_view name) const {
  std::lock_guard lock(mutex_);
  auto found = in_flight_.find(KeyView{process_set, name});
  return found == in_flight_.end() ? Found{} : found->second;
}

bool OperationTable::finish(const SubmissionRef& submission, Operation& operation, Status status) {
  std::lock_guard lock(mutex_);
  return finish_locked(submission, operation, std::move(status));
}

bool OperationTable::finish_locked(const SubmissionRef& submission, Operation& operation, Status status) {
  auto found = in_flight_.find(KeyView{operation.request.process_set, operation.request.name});
  if (found == in_flight_.end() || found->second.operation != &operation) return false;  // ended by finish_all()
  if (submission->status.ok()) submission->status = status;
  operation.status = std::move(status);
  in_flight_.erase(found);
  return --submission->unfinished == 0;
}

std::vector<SubmissionRef> OperationTable::finish_all(const Status& status) {
  std::lock_guard lock(mutex_);
  std::vector<Found> ending;
  for (const auto& [key, found] : in_flight_) {
    if (!found.operation->running) ending.push_back(found);
  }
  std::vector<SubmissionRef> done;
  for (Found& found : ending) {
    if (finish_locked(found.submission, *found.operation, status)) done.push_back(std::move(found.submission));
  }
  return done;
}

void OperationTable::close(const Status& status) {
  std::lock_guard lock(mutex_);
  closed_ = status;
}

size_t OperationTable::in_flight() const {
  std::lock_guard lock(mutex_);
  return in_flight_.size();
}

}  // namespace hvd
