#include "rendezvous/store_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace hvd {
namespace {

Bytes reply_of(uint64_t id, const Status& status) {
  return encode(StoreReply{.id = id, .code = status.code(), .message = status.message()});
}

}  // namespace

void StoreTable::handle(uint64_t client, const StoreRequest& request, std::vector<Answer>& answers) {
  waiting_.erase(client);
  if (request.key.size() > limits_.key) {
    Status status(Code::invalid_argument,
                  fmt::format("a key of {} bytes; the store takes up to {}", request.key.size(), limits_.key));
    answers.push_back({client, reply_of(request.id, status)});
    return;
  }
  switch (request.verb) {
    case StoreVerb::set: {
      Status status = set(request, answers);
      answers.push_back({client, reply_of(request.id, status)});
      return;
    }
    case StoreVerb::remove:
      remove(request.key);
      answers.push_back({client, reply_of(request.id, {})});
      return;
    case StoreVerb::get:
    case StoreVerb::gather: wait(client, request, answers); return;
  }
}

void StoreTable::forget(uint64_t client) { waiting_.erase(client); }

Status StoreTable::set(const StoreRequest& request, std::vector<Answer>& answers) {
  if (request.value.size() > limits_.value) {
    return {Code::invalid_argument, fmt::format("the value of {} has {} bytes; the store takes up to {}", request.key,
                                                request.value.size(), limits_.value)};
  }
  auto found = values_.find(request.key);
  bool is_new = found == values_.end();
  size_t freed = is_new ? 0 : found->second.size();
  size_t added = request.value.size() + (is_new ? request.key.size() : 0);
  if (bytes_ - freed + added > limits_.bytes || (is_new && values_.size() >= limits_.entries)) {
    return {Code::unknown, fmt::format("the store is full: {} values, {} bytes", values_.size(), bytes_)};
  }
  bytes_ = bytes_ - freed + added;
  Bytes value(request.value.begin(), request.value.end());
  if (!is_new) {
    found->second = std::move(value);
    return {};
  }
  values_.emplace(request.key, std::move(value));
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    Waiting& waiting = each->second;
    bool helps = waiting.verb == StoreVerb::get ? waiting.key == request.key : request.key.starts_with(waiting.key);
    if (!helps || --waiting.missing > 0) {
      ++each;
      continue;
    }
    answers.push_back({each->first, answer_to(waiting)});
    each = waiting_.erase(each);
  }
  return {};
}

void StoreTable::remove(std::string_view prefix) {
  auto [first, last] = range_of(prefix);
  for (auto each = first; each != last; ++each) {
    bytes_ -= each->first.size() + each->second.size();
    for (auto& [client, waiting] : waiting_) {
      if (waiting.verb == StoreVerb::gather && each->first.starts_with(waiting.key)) waiting.missing++;
    }
  }
  values_.erase(first, last);
}

void StoreTable::wait(uint64_t client, const StoreRequest& request, std::vector<Answer>& answers) {
  Waiting waiting{.id = request.id, .verb = request.verb, .key = std::string(request.key)};
  waiting.missing = count_missing(waiting, request.verb == StoreVerb::get ? 1 : request.count);
  if (waiting.missing == 0) {
    answers.push_back({client, answer_to(waiting)});
  } else {
    waiting_.emplace(client, std::move(waiting));
  }
}

uint64_t StoreTable::count_missing(const Waiting& waiting, uint64_t wanted) const {
  if (waiting.verb == StoreVerb::get) return values_.contains(waiting.key) ? 0 : 1;
  auto [first, last] = range_of(waiting.key);
  auto present = static_cast<uint64_t>(std::distance(first, last));
  return wanted - std::min(wanted, present);
}

Bytes StoreTable::answer_to(const Waiting& waiting) const {
  StoreReply reply{.id = waiting.id};
  if (waiting.verb == StoreVerb::get) {
    reply.value = values_.find(waiting.key)->second;
  } else {
    auto [first, last] = range_of(waiting.key);
    reply.entries.assign(first, last);
  }
  return encode(reply);
}

std::pair<StoreTable::Values::const_iterator, StoreTable::Values::const_iterator> StoreTable::range_of(
    std::string_view prefix) const {
  auto first = values_.lower_bound(prefix);
  auto last = first;
  while (last != values_.end() && last->first.starts_with(prefix)) ++last;
  return {first, last};
}

}  // namespace hvd
