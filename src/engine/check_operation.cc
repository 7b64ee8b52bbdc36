#include "engine/check_operation.h"

#include <fmt/core.h>

#include "model/share.h"

namespace hvd {
namespace {

Status check_alltoall(Operation& operation, int32_t members) {
  const Request& request = operation.request;
  if (request.shape.empty()) return {};  // the coordinator rejects scalars, on all ranks
  int64_t rows = request.shape[0];
  if (operation.sent_rows.empty()) {
    if (rows % members != 0) {
      return {Code::invalid_argument,
              fmt::format("alltoall {}: {} rows cannot be split evenly over {} ranks; pass splits", request.name, rows,
                          members)};
    }
    operation.sent_rows.assign(static_cast<size_t>(members), rows / members);
    return {};
  }
  if (operation.sent_rows.size() != static_cast<size_t>(members)) {
    return {Code::invalid_argument,
            fmt::format("alltoall {}: {} splits for {} ranks", request.name, operation.sent_rows.size(), members)};
  }
  int64_t sum = 0;
  for (int64_t count : operation.sent_rows) {
    if (count < 0) return {Code::invalid_argument, fmt::format("alltoall {}: a split is negative", request.name)};
    sum += count;
  }
  if (sum > rows) {
    return {Code::invalid_argument,
            fmt::format("alltoall {}: the splits add up to {} but the tensor has {} rows", request.name, sum, rows)};
  }
  return {};
}

// The name on the wire contains the direction, because both directions may use the same name at once.
Status check_transfer(Operation& operation, const World& world) {
  Request& request = operation.request;
  if (operation.peer < 0 || operation.peer >= world.size || operation.peer == world.rank) {
    return {Code::invalid_argument, fmt::format("{}: there is no other rank {} in a world of {} ranks", request.name,
                                                operation.peer, world.size)};
  }
  bool sends = request.root_rank == Operation::kSelf;
  if (sends) request.root_rank = world.rank;
  request.process_set = pair_set(world.rank, operation.peer);
  request.name =
      fmt::format("{}>{}:{}", sends ? world.rank : operation.peer, sends ? operation.peer : world.rank, request.name);
  return {};
}

Status check_root(Operation& operation, const World& world, const ProcessSetTable& process_sets) {
  const Request& request = operation.request;
  if (!process_sets.contains(request.process_set, request.root_rank)) {
    return {Code::invalid_argument, fmt::format("{}: root rank {} is not in process set {}", request.name,
                                                request.root_rank, request.process_set)};
  }
  bool is_root = request.root_rank == world.rank;
  bool is_for_root = request.kind == Kind::reduce || request.kind == Kind::gather;
  if (is_for_root && !is_root) {
    operation.output = {.dtype = request.dtype, .shape = {0}, .device = request.device};
  }
  return {};
}

}  // namespace

Status check_operation(Operation& operation, const World& world, const ProcessSetTable& process_sets) {
  Request& request = operation.request;
  if (manages_sets(request.kind) && request.kind != Kind::leave_process_set) return {};
  if (request.kind == Kind::transfer) {
    if (Status status = check_transfer(operation, world); !status.ok()) return status;
  }
  if (request.kind == Kind::probe) request.process_set = pair_set(world.rank, world.rank);
  auto [count, position, serial] = process_sets.membership(request.process_set);
  operation.set_serial = serial;
  if (count == 0) {
    return {Code::invalid_argument, fmt::format("{}: there is no process set {}", request.name, request.process_set)};
  }
  if (position < 0) {
    return {Code::invalid_argument,
            fmt::format("{}: rank {} is not in process set {}", request.name, world.rank, request.process_set)};
  }
  switch (request.kind) {
    case Kind::broadcast:
    case Kind::reduce: return check_root(operation, world, process_sets);
    case Kind::gather:
    case Kind::scatter:
      if (request.shape.empty()) {
        return {Code::invalid_argument,
                fmt::format("{}: {} needs at least one dimension", request.name, name_of(request.kind))};
      }
      if (request.kind == Kind::scatter) {
        operation.output.shape = request.shape;
        operation.output.shape[0] = share_of(request.shape[0], position, count);
      }
      return check_root(operation, world, process_sets);
    case Kind::alltoall: return check_alltoall(operation, count);
    case Kind::reducescatter:
      if (request.shape.empty()) {
        return {Code::invalid_argument, fmt::format("{}: reducescatter needs at least one dimension", request.name)};
      }
      operation.output.shape = request.shape;
      operation.output.shape[0] = share_of(request.shape[0], position, count);
      break;
    case Kind::allreduce:
    case Kind::allgather:
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::transfer:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return {};
}

}  // namespace hvd
