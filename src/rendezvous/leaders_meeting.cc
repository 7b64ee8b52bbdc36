#include "rendezvous/leaders_meeting.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <charconv>

#include "base/joined.h"
#include "model/host_tree.h"
#include "net/connector.h"
#include "net/interfaces.h"
#include "rendezvous/parcel.h"
#include "rendezvous/report.h"

namespace hvd {
namespace {

// interval to check for new connections and for failures in the store
constexpr Duration kSlice = std::chrono::milliseconds(500);
constexpr Duration kShortSlice = std::chrono::milliseconds(20);  // the same, and for an interrupt
// a connected peer may send its error this long after its deadline
constexpr Duration kPatience = std::chrono::seconds(5);
constexpr Duration kLastWord = std::chrono::seconds(2);        // to query the store about missing hosts
constexpr Duration kNoSilence = std::chrono::hours(24 * 365);  // no heartbeats while the world forms

std::unique_ptr<ControlLink> make_link(std::unique_ptr<Stream> stream, std::string name) {
  return std::make_unique<ControlLink>(std::move(stream), std::move(name),
                                       ControlLinkSettings{.heartbeat = kNoSilence, .silence = kNoSilence},
                                       Clock::now());
}

constexpr std::string_view kWorlds = "world/";

std::string key_prefix(Generation generation) {
  return fmt::format("{}{}/", kWorlds, static_cast<uint64_t>(generation));
}
std::string failures_prefix(Generation generation) { return key_prefix(generation) + "failure/"; }
std::string host_key(Generation generation, int32_t host) {
  return fmt::format("{}host/{}", key_prefix(generation), host);
}

Result<std::vector<HostRecord>> hosts_in(ByteView bytes) {
  Decoder in(bytes);
  return decode_hosts(in);
}

}  // namespace

std::string failure_key(Generation generation, int32_t host) {
  return fmt::format("{}{}", failures_prefix(generation), host);
}

LeadersMeeting::LeadersMeeting(HostRecord own, Generation generation, Credentials credentials, Store& store,
                               Acceptor& acceptor, TimePoint deadline, int interrupt)
    : own_(std::move(own)),
      generation_(generation),
      credentials_(std::move(credentials)),
      store_(store),
      acceptor_(acceptor),
      deadline_(deadline),
      interrupt_(interrupt),
      expected_(place_of_host(own_.index, own_.hosts).children) {}

void LeadersMeeting::wait_for(std::vector<int> descriptors, TimePoint until) const {
  if (interrupt_ >= 0) descriptors.push_back(interrupt_);
  std::vector<pollfd> all;
  all.reserve(descriptors.size());
  for (int descriptor : descriptors) all.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  ::poll(all.data(), all.size(), milliseconds_until(until));
}

bool LeadersMeeting::is_interrupted() const { return is_readable(interrupt_); }

void LeadersMeeting::connect() {
  Bytes record;
  Encoder out(record);
  encode(out, {own_});
  trouble_ = store_.set(host_key(generation_, own_.index), record, deadline_);
  if (trouble_.ok() && own_.index > 0) {
    auto parent = find_parent();
    trouble_ = parent.ok() ? connect_to_parent(*parent) : parent.status();
    if (!trouble_.ok() && !is_interrupted()) {  // the parent cannot get the error from us
      Bytes text;
      Encoder out_text(text);
      out_text.text(trouble_.message());
      encode(out_text, trouble_.origin());
      (void)store_.set(failure_key(generation_, own_.index), text, Clock::now() + kLastWord);
    }
  }
  if (trouble_.ok()) trouble_ = await_children();
}

Result<HostRecord> LeadersMeeting::find_parent() {
  int32_t index = place_of_host(own_.index, own_.hosts).parent;
  for (;;) {
    TimePoint now = Clock::now();
    auto record =
        store_.get(host_key(generation_, index), std::min(deadline_, now + (interrupt_ < 0 ? kSlice : kShortSlice)));
    if (record.ok()) {
      auto hosts = hosts_in(*record);
      if (!hosts.ok()) return hosts.status();
      return std::move(hosts->front());
    }
    if (record.status().code() != Code::timed_out) return record.status();
    accept_children();
    if (is_interrupted()) return was_interrupted();
    if (Status status = look_for_failure(); !status.ok()) return status;
    if (Clock::now() >= deadline_) return explain_missing(fmt::format("host {} did not come", index));
  }
}

Status LeadersMeeting::connect_to_parent(const HostRecord& parent) {
  auto interfaces = read_interfaces();
  if (!interfaces.ok()) return interfaces.status();
  Target target{.name = rank_name(parent, 0),
                .endpoints = order_for_connecting(endpoints_of(parent, 0), *interfaces),
                .identity = {.purpose = Purpose::control,
                             .generation = generation_,
                             .from = own_.ranks.front().rank,
                             .to = parent.ranks.front().rank,
                             .stripe = own_.index}};
  // Gives up a little earlier than the parent, so that it can send the reason.
  TimePoint now = Clock::now();
  TimePoint until = deadline_ - std::min<Duration>(std::chrono::seconds(1), (deadline_ - now) / 10);
  auto connector = Connector::create(std::move(target), credentials_, now, until);
  if (!connector.ok()) return connector.status();
  for (;;) {
    accept_children();
    if (auto result = (*connector)->poll(Clock::now())) {
      if (!result->ok()) {
        return {result->status().code(), fmt::format("{}: {}", rank_name(own_, 0), result->status().message()),
                result->status().origin()};
      }
      parent_ = make_link(std::move(result->value()), rank_name(parent, 0));
      parent_->set_peer(rank_name(parent, 0), leader_of(parent));
      return {};
    }
    wait_for({acceptor_.descriptor(), (*connector)->descriptor()}, std::min(until, Clock::now() + kSlice));
    if (is_interrupted()) return was_interrupted();
    if (Status status = look_for_failure(); !status.ok()) return status;
  }
}

void LeadersMeeting::accept_children() {
  std::vector<Accepted> accepted;
  acceptor_.poll(Clock::now(), accepted);
  for (Accepted& one : accepted) {
    if (one.identity.purpose == Purpose::data) {
      early_.push_back(std::move(one));
      continue;
    }
    int32_t host = one.identity.stripe;
    if (std::find(expected_.begin(), expected_.end(), host) == expected_.end()) continue;
    auto same = [&](const auto& child) { return child.first == host; };
    children_.erase(std::remove_if(children_.begin(), children_.end(), same), children_.end());
    children_.emplace_back(host, make_link(std::move(one.stream), fmt::format("rank {}", one.identity.from)));
  }
}

Status LeadersMeeting::await_children() {
  for (accept_children(); !has_all_children(); accept_children()) {
    if (Clock::now() >= deadline_) return explain_missing("not all hosts connected");
    wait_for({acceptor_.descriptor()}, std::min(deadline_, Clock::now() + kSlice));
    if (is_interrupted()) return was_interrupted();
    if (Status status = look_for_failure(); !status.ok()) return status;
  }
  return {};
}

// A host that cannot join writes the reason to the store. Checked repeatedly, so that the others do not wait for it
// until the time-out.
Status LeadersMeeting::look_for_failure() {
  if (Clock::now() < look_at_) return {};
  look_at_ = Clock::now() + kSlice;
  auto failures = store_.gather(failures_prefix(generation_), 0, Clock::now() + kLastWord);
  if (!failures.ok() || failures->empty()) return {};  // errors of the store are reported by the code that needs it
  std::vector<std::string> reasons;
  Origin origin;  // of the first one known
  for (const auto& [key, value] : *failures) {
    Decoder in(value);
    reasons.emplace_back(in.text());
    Origin one = decode_origin(in);
    if (origin.kind == OriginKind::none) origin = std::move(one);
  }
  return {Code::unknown, "the world did not form: " + joined(reasons, "; "), std::move(origin)};
}

// Queries the store for hosts that did not connect, and for their reasons.
Status LeadersMeeting::explain_missing(std::string_view what) {
  look_at_ = {};
  if (Status status = look_for_failure(); !status.ok()) return status;
  auto entries = store_.gather(key_prefix(generation_), 0, Clock::now() + kLastWord);
  if (!entries.ok()) return entries.status();
  std::vector<bool> present(static_cast<size_t>(own_.world_size));
  std::vector<std::string> hosts;
  for (const auto& [key, value] : *entries) {
    auto records = hosts_in(value);
    if (!records.ok() || records->empty()) continue;
    hosts.push_back(records->front().name);
    for (const HostRecord::Rank& rank : records->front().ranks) {
      if (rank.rank >= 0 && rank.rank < own_.world_size) present[static_cast<size_t>(rank.rank)] = true;
    }
  }
  std::vector<size_t> missing;
  for (size_t rank = 0; rank < present.size(); rank++) {
    if (!present[rank]) missing.push_back(rank);
  }
  if (missing.empty()) {
    return {Code::unknown, fmt::format("the world did not form in time: {} ({} reached the rendezvous) "
                                       "(HOROVOD_START_TIMEOUT)",
                                       what, joined(hosts, ", "))};
  }
  return {
      Code::unknown,
      fmt::format("the world did not form in time: of {} ranks on {} hosts, these never connected: {}; there were {} "
                  "(HOROVOD_START_TIMEOUT)",
                  own_.world_size, own_.hosts, joined(missing, ", "), joined(hosts, ", "))};
}

// An elastic job may form worlds for weeks, and some of them never complete.
void LeadersMeeting::clear_store() {
  TimePoint until = Clock::now() + kLastWord;
  if (!store_.remove(key_prefix(generation_), until).ok()) return;
  auto left = store_.gather(kWorlds, 0, until);
  if (!left.ok()) return;
  for (const auto& [key, value] : *left) {
    uint64_t number = 0;
    auto [end, error] = std::from_chars(key.data() + kWorlds.size(), key.data() + key.size(), number);
    if (error == std::errc() && Generation{number} < generation_)
      (void)store_.remove(key_prefix(Generation{number}), until);
  }
}

Result<Bytes> LeadersMeeting::await_report(ControlLink& link) {
  TimePoint until = std::max(deadline_, Clock::now()) + kPatience;
  for (;;) {
    Status status = link.progress(Clock::now());
    ByteView message;
    if (link.receive(message)) return decode_report(message);
    if (!status.ok())
      return Status(status.code(), fmt::format("{} before the world formed", status.message()), status.origin());
    if (is_interrupted()) return was_interrupted();
    if (Clock::now() >= until) {
      return Status(Code::unknown,
                    fmt::format("{} did not answer while the world formed (HOROVOD_START_TIMEOUT)", link.peer()));
    }
    wait_for({link.descriptor()}, std::min(until, link.next_deadline()));
  }
}

Result<Bytes> LeadersMeeting::agree(Result<Bytes> own, const Merge& merge, const Judge& judge) {
  Result<Bytes> all = trouble_.ok() ? std::move(own) : Result<Bytes>(trouble_);
  if (trouble_.ok()) {
    for (auto& [host, link] : children_) {
      auto report = await_report(*link);
      if (!report.ok()) {
        if (all.ok()) all = report.status();  // still receive from the others: they wait for a verdict
      } else if (all.ok()) {
        merge(*all, *report);
      }
    }
  }
  Result<Bytes> verdict = all;
  if (own_.index == 0) {
    if (all.ok()) verdict = judge(std::move(*all));
  } else if (parent_ != nullptr) {
    parent_->send(encode_report(all));
    verdict = await_report(*parent_);
  }
  for (auto& [host, link] : children_) link->send(encode_report(verdict));
  // A verdict may be larger than a socket buffer.
  for (auto& [host, link] : children_) {
    while (link->has_unsent() && link->progress(Clock::now()).ok()) wait_for({}, Clock::now() + kSlice / 500);
  }
  return verdict;
}

}  // namespace hvd
