#include "rendezvous/membership.h"

#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>

#include <exception>
#include <utility>

#include "base/bell.h"
#include "base/log.h"
#include "net/connector.h"

namespace hvd {
namespace {

constexpr size_t kMostChanges = 1024;  // unread ones; the caller only needs to know whether there are any

template <class... Cases>
struct Match : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Match(Cases...) -> Match<Cases...>;  // clang 14 does not deduce it

}  // namespace

Result<std::unique_ptr<Membership>> Membership::join(std::vector<Endpoint> launcher, const Credentials& credentials,
                                                     int32_t worker, TimePoint deadline) {
  auto bell = create_bell();
  if (!bell.ok()) return bell.status();
  auto voided = create_bell();
  if (!voided.ok()) return voided.status();
  auto stream = connect({.name = "the launcher of this elastic job",
                         .endpoints = std::move(launcher),
                         .identity = {.purpose = Purpose::elastic, .from = worker}},
                        credentials, deadline);
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<Membership>(new Membership(std::move(*stream), std::move(*bell), std::move(*voided)));
}

Membership::Membership(std::unique_ptr<Stream> stream, UniqueFd bell, UniqueFd voided)
    : frames_(std::move(stream), kElasticFrames), bell_(std::move(bell)), voided_(std::move(voided)) {
  thread_ = std::jthread([this](const std::stop_token& stop) {
    ::pthread_setname_np(::pthread_self(), "hvd-elastic");
    run(stop);
  });
}

Membership::~Membership() {
  thread_.request_stop();
  ring(bell_);
  thread_.join();
}

void Membership::run(const std::stop_token& stop) {
  Status status;
  while (status.ok() && !stop.stop_requested()) {
    try {
      status = exchange();
    } catch (const std::exception& problem) {
      status = {Code::unknown, problem.what()};
    }
    if (!status.ok()) break;
    pollfd wanted[] = {{.fd = frames_.descriptor(), .events = POLLIN, .revents = 0},
                       {.fd = bell_.get(), .events = POLLIN, .revents = 0}};
    if (frames_.has_unsent()) wanted[0].events |= POLLOUT;
    ::poll(wanted, 2, -1);
    silence(bell_);
  }
  std::lock_guard lock(mutex_);
  if (over_.ok())
    over_ = {Code::peer_lost, fmt::format("the launcher is gone, so the job is over ({})",
                                          status.ok() ? std::string_view("this process ends") : status.message())};
  ring(voided_);
  arrived_.notify_all();
}

Status Membership::exchange() {
  std::deque<Bytes> outgoing;
  {
    std::lock_guard lock(mutex_);
    outgoing.swap(outgoing_);
  }
  for (const Bytes& message : outgoing)
    if (Status status = frames_.send(message); !status.ok()) return status;
  if (Status status = frames_.flush(); !status.ok()) return status;
  for (;;) {
    auto bytes = frames_.receive();
    if (!bytes.ok()) return bytes.status();
    if (!*bytes) return {};
    auto message = decode_elastic_message(**bytes);
    if (!message.ok()) return message.status();
    take(std::move(*message));
  }
}

void Membership::take(ElasticMessage message) {
  std::lock_guard lock(mutex_);
  std::visit(Match{[&](Place& place) {
                     last_ = place.generation;
                     silence(voided_);  // it may have been about the previous world
                     place_ = place;
                   },
                   [&](WorldVoid& gone) {
                     if (gone.generation != last_ || (is_waiting_ && !place_)) return;  // it has already reported again
                     void_reason_ = std::move(gone.reason);
                     place_.reset();
                     ring(voided_);
                   },
                   [&](Dismissal& dismissal) { dismissal_ = std::move(dismissal); },
                   [&](JobOver& end) {
                     over_ = {Code::aborted, fmt::format("the job has failed: {}", end.reason)};
                     ring(voided_);
                   },
                   [&](HostsChanged& change) {
                     if (changes_.size() == kMostChanges) changes_.pop_front();
                     changes_.push_back(change);
                   },
                   [](auto&) {}},  // messages that only workers send
             message);
  arrived_.notify_all();
}

Status Membership::send(const ElasticMessage& message) {
  {
    std::lock_guard lock(mutex_);
    if (!over_.ok()) return over_;
    outgoing_.push_back(encode(message));
  }
  ring(bell_);
  return {};
}

// A world that became void before this process used it is not returned; the launcher was asked, so another place
// follows after this process has reported again that it is ready.
Result<Place> Membership::next_place(const std::string& reason, int32_t lost_rank, TimePoint deadline) {
  std::string why = reason;
  for (;;) {
    Generation last;
    {
      std::lock_guard lock(mutex_);
      if (dismissal_) return Status(Code::removed, dismissal_->reason);
      place_.reset();
      void_reason_.clear();
      silence(voided_);
      is_waiting_ = true;
      last = last_;
    }
    if (Status status = send(WorkerReady{.last = last, .reason = why, .lost_rank = lost_rank}); !status.ok())
      return status;
    std::unique_lock lock(mutex_);
    bool has_come = arrived_.wait_until(lock, deadline,
                                        [&] { return place_ || dismissal_ || !over_.ok() || !void_reason_.empty(); });
    is_waiting_ = false;
    if (dismissal_) return Status(Code::removed, dismissal_->reason);
    if (!over_.ok()) return over_;
    if (place_) return *std::exchange(place_, std::nullopt);
    if (!has_come)
      return Status(Code::timed_out,
                    "the launcher gave this process no place in a world within the time of HOROVOD_ELASTIC_TIMEOUT");
    why = void_reason_;
    lost_rank = -1;
  }
}

std::string Membership::void_reason() const {
  std::lock_guard lock(mutex_);
  return over_.ok() ? void_reason_ : std::string(over_.message());
}

Result<HostsChanged> Membership::next_change(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  bool has_come = arrived_.wait_until(lock, deadline, [&] { return !changes_.empty() || has_stopped_ || !over_.ok(); });
  if (has_stopped_) return Status(Code::aborted, "the wait for changes of the hosts has been stopped");
  if (!changes_.empty()) {
    HostsChanged first = changes_.front();
    changes_.pop_front();
    return first;
  }
  if (!has_come) return Status(Code::timed_out, "no change of the hosts in this time");
  return Status(Code::aborted, std::string(over_.message()));
}

void Membership::stop_waiting() {
  std::lock_guard lock(mutex_);
  has_stopped_ = true;
  arrived_.notify_all();
}

Status Membership::leave(const std::string& reason) { return send(WorkerLeaves{reason}); }

}  // namespace hvd
