#include "backends/mpi/mpi_backend.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"

namespace hvd {
namespace {

constexpr size_t kLookedAt = 4;  // of the executions in progress; testing the first one moves all
constexpr size_t kSpares = 8;
constexpr uint32_t kPollsPerLookAtTheClock = 64;

bool scales(const Reduction& reduction) { return reduction.prescale != 1.0 || reduction.factor != 1.0; }

Reduction reduction_of(const Request& request, int32_t ranks) {
  Reduction reduction{
      .dtype = request.dtype, .op = request.reduce_op, .prescale = request.prescale, .factor = request.postscale};
  if (request.reduce_op == ReduceOp::average) {
    reduction.op = ReduceOp::sum;
    reduction.factor /= ranks;
  }
  return reduction;
}

}  // namespace

MpiBackend::MpiBackend(MpiSession& session, const MpiComm& world, BackendContext context, MpiBackendSettings settings)
    : session_(session), world_(world), context_(std::move(context)), settings_(std::move(settings)) {}

std::string_view MpiBackend::activity(Kind kind) const {
  switch (kind) {
    case Kind::allreduce: return "MPI_ALLREDUCE";
    case Kind::allgather: return "MPI_ALLGATHER";
    case Kind::broadcast: return "MPI_BCAST";
    case Kind::alltoall: return "MPI_ALLTOALL";
    case Kind::reducescatter: return "MPI_REDUCESCATTER";
    case Kind::barrier:
    case Kind::join:
    case Kind::add_process_set:
    case Kind::remove_process_set:
    case Kind::reduce:
    case Kind::gather:
    case Kind::scatter:
    case Kind::transfer:
    case Kind::probe:
    case Kind::form_process_set:
    case Kind::leave_process_set: break;
  }
  return "NONE";
}

// The built-in backend handles Adasum, bitwise operations, the kinds after reducescatter, and the errors for
// unsupported combinations. For the factor of an average the number of ranks does not matter.
bool MpiBackend::accepts(const Plan& plan) const {
  const Request& request = plan.first();
  if (request.device != kHost || request.kind > Kind::reducescatter) return false;
  if (request.kind != Kind::allreduce && request.kind != Kind::reducescatter) return true;
  if (request.reduce_op == ReduceOp::adasum || request.reduce_op > ReduceOp::product) return false;
  Reduction reduction = reduction_of(request, 2);
  return can_reduce(reduction.dtype, reduction.op) && (!scales(reduction) || can_scale(reduction.dtype));
}

Result<const MpiComm*> MpiBackend::comm_of(int32_t process_set) {
  if (process_set == kWorldSet) return &world_;
  std::vector<int32_t> members = context_.members(process_set);
  if (auto found = comms_.find(members); found != comms_.end()) return found->second;
  auto made = session_.part_of(world_, members, after(Clock::now(), settings_.start_timeout));
  if (!made.ok()) return made.status();
  comms_[std::move(members)] = *made;
  return *made;
}

std::unique_ptr<MpiExecution> MpiBackend::take_spare() {
  if (spares_.empty()) return std::make_unique<MpiExecution>(session_.library(), settings_.most);
  auto execution = std::move(spares_.back());
  spares_.pop_back();
  return execution;
}

void MpiBackend::run(const Plan& plan, std::span<Operation* const> operations, Done done) {
  const Request& request = plan.first();
  Status status = session_.usable();
  auto comm = status.ok() ? comm_of(request.process_set) : Result<const MpiComm*>(status);
  if (!comm.ok()) {
    fail(comm.status());
    return done(comm.status());
  }
  std::unique_ptr<MpiExecution> execution = take_spare();
  execution->name = request.name;
  execution->since = Clock::now();
  execution->done = std::move(done);
  if (under_way_.empty()) warned_ = execution->since;
  status = execution->start(plan, operations, **comm, reduction_of(request, (*comm)->size));
  under_way_.push_back(std::move(execution));
  if (!status.ok()) fail(status);
}

bool MpiBackend::poll() {
  bool any = false;
  for (size_t i = 0; i < std::min(under_way_.size(), kLookedAt);) {
    Result<bool> is_done = under_way_[i]->test();
    if (!is_done.ok()) {
      fail(is_done.status());
      return true;
    }
    if (!*is_done) {
      i++;
      continue;
    }
    any = true;
    std::unique_ptr<MpiExecution> execution = std::move(under_way_[i]);
    under_way_.erase(under_way_.begin() + static_cast<int64_t>(i));
    std::exchange(execution->done, nullptr)({});
    if (spares_.size() < kSpares) spares_.push_back(std::move(execution));
  }
  if (++polls_ % kPollsPerLookAtTheClock == 0 && !under_way_.empty()) watch(Clock::now());
  return any;
}

// The ranks agreed on the plan, so all of them take part: a rank that is late is stopped, or MPI has lost it.
void MpiBackend::watch(TimePoint now) {
  const MpiExecution& oldest = *under_way_.front();
  double waited = seconds_of(now - oldest.since);
  if (settings_.timeout > Duration{} && now - oldest.since >= settings_.timeout) {
    fail({Code::unknown,
          fmt::format("MPI did not finish {} within {:g} s (HOROVOD_COLLECTIVE_TIMEOUT_SECONDS); {} waited",
                      oldest.name, seconds_of(settings_.timeout), settings_.rank_name)});
  } else if (settings_.stall_warning > Duration{} && now - std::max(warned_, oldest.since) >= settings_.stall_warning) {
    warned_ = now;
    log_warning("{} has been waiting {:.0f} s for MPI inside {}", settings_.rank_name, waited, oldest.name);
  }
}

void MpiBackend::fail(const Status& status) {
  settings_.fail_world(status);
  give_up(status);
}

// MPI may still write to their memory, and collectives cannot be cancelled: they are abandoned, and MPI is not called
// again.
void MpiBackend::give_up(const Status& status) {
  if (under_way_.empty()) return;
  session_.spoil(status);
  auto* left = new std::deque<std::unique_ptr<MpiExecution>>(std::move(under_way_));
  under_way_.clear();
  for (const std::unique_ptr<MpiExecution>& execution : *left) std::exchange(execution->done, nullptr)(status);
}

}  // namespace hvd
