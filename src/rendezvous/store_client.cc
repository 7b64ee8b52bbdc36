#include "rendezvous/store_client.h"

#include <fmt/core.h>
#include <poll.h>

#include "base/joined.h"
#include "net/poller.h"
#include "rendezvous/store_frames.h"

namespace hvd {
namespace {

FrameLimits client_frames(const StoreLimits& limits) {
  FrameLimits server = store_frames(limits);
  return {.largest_received = server.largest_sent,
          .largest_sent = server.largest_received,
          .queued = 2 * server.largest_received};
}

std::string names_of(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> names;
  names.reserve(endpoints.size());
  for (const Endpoint& endpoint : endpoints) names.push_back(to_text(endpoint.address));
  return joined(names, ", ");
}

}  // namespace

Result<std::unique_ptr<StoreClient>> StoreClient::connect(std::vector<Endpoint> endpoints,
                                                          const Credentials& credentials, int32_t rank,
                                                          TimePoint deadline, StoreLimits limits) {
  std::string server = names_of(endpoints);
  auto stream = hvd::connect({.name = "the job's store",
                              .endpoints = std::move(endpoints),
                              .identity = {.purpose = Purpose::store, .from = rank}},
                             credentials, deadline);
  if (!stream.ok()) return stream.status();
  return std::unique_ptr<StoreClient>(new StoreClient(std::move(*stream), std::move(server), limits));
}

StoreClient::StoreClient(std::unique_ptr<Stream> stream, std::string server, StoreLimits limits)
    : frames_(std::move(stream), client_frames(limits)), server_(std::move(server)), limits_(limits) {}

Status StoreClient::set(std::string_view key, ByteView value, TimePoint deadline) {
  if (value.size() > limits_.value) {
    return {Code::invalid_argument,
            fmt::format("the value of {} has {} bytes; the store takes up to {}", key, value.size(), limits_.value)};
  }
  return ask({.verb = StoreVerb::set, .key = key, .value = value}, deadline).status();
}

Result<Bytes> StoreClient::get(std::string_view key, TimePoint deadline) {
  auto message = ask({.verb = StoreVerb::get, .key = key}, deadline);
  if (!message.ok()) return message.status();
  ByteView value = decode_reply(*message)->value;
  return Bytes(value.begin(), value.end());
}

Result<Store::Entries> StoreClient::gather(std::string_view prefix, size_t count, TimePoint deadline) {
  auto message = ask({.verb = StoreVerb::gather, .key = prefix, .count = count}, deadline);
  if (!message.ok()) return message.status();
  return std::move(decode_reply(*message)->entries);
}

Status StoreClient::remove(std::string_view prefix, TimePoint deadline) {
  return ask({.verb = StoreVerb::remove, .key = prefix}, deadline).status();
}

Result<Bytes> StoreClient::ask(StoreRequest request, TimePoint deadline) {
  if (!failure_.ok()) return failure_;
  if (request.key.size() > limits_.key) {
    return Status(Code::invalid_argument,
                  fmt::format("a key of {} bytes; the store takes up to {}", request.key.size(), limits_.key));
  }
  request.id = ++last_id_;
  if (Status status = frames_.send(encode(request)); !status.ok()) return lost(status);
  return answer_to(request.id, request.key, deadline);
}

// Skips replies to earlier requests that timed out.
Result<Bytes> StoreClient::answer_to(uint64_t id, std::string_view about, TimePoint deadline) {
  for (;;) {
    if (Status status = frames_.flush(); !status.ok()) return lost(status);
    auto message = frames_.receive();
    if (!message.ok()) return lost(message.status());
    if (*message) {
      auto reply = decode_reply(**message);
      if (!reply.ok()) return lost(reply.status());
      if (reply->id != id) continue;
      if (reply->code != Code::ok) return Status(reply->code, std::string(reply->message));
      return std::move(**message);
    }
    if (Clock::now() >= deadline) {
      return Status(Code::timed_out,
                    fmt::format("the job's store at {} did not answer about '{}' in time", server_, about));
    }
    pollfd one{.fd = frames_.descriptor(), .events = POLLIN, .revents = 0};
    if (frames_.has_unsent()) one.events |= POLLOUT;
    ::poll(&one, 1, milliseconds_until(deadline));
  }
}

Status StoreClient::lost(const Status& status) {
  failure_ = Status(Code::peer_lost, fmt::format("lost the job's store at {}: {}", server_, status.message()));
  return failure_;
}

}  // namespace hvd
