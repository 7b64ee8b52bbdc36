#include "nccl/communicator.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <set>

#include "core/settings.h"
#include "nccl/device_queue.h"

namespace standin::nccl {
namespace {

struct All {
  std::set<const void*> handles;
  uint64_t count = 0;
};
All& all() {
  static All& value = *new All;
  return value;
}

enum NoticeKind : uint32_t { kBye = 1, kText = 2 };
struct NoticeHeader {
  uint32_t kind;
  uint32_t bytes;
};

void lose(Communicator& communicator, size_t peer) {
  const std::lock_guard lock(core().mutex);
  if (communicator.gone[peer]) return;
  communicator.gone[peer] = true;
  core().changed.notify_all();
  if (communicator.said_bye[peer] || communicator.ended || communicator.aborted || !settings().peer_loss_shows) return;
  set_last_error("NCCL: remote process exited or there was a network error, rank " + std::to_string(peer) + " of " +
                 communicator.name());
  int none = 0;
  communicator.error.compare_exchange_strong(none, kRemoteError);
}

// False when the peer is gone.
bool read_notice(Communicator& communicator, size_t peer) {
  const Socket& socket = communicator.links[peer].control;
  NoticeHeader header{};
  if (!receive_all(socket, &header, sizeof header, communicator.stop())) return false;
  std::string text(header.bytes, 0);
  if (!receive_all(socket, text.data(), text.size(), communicator.stop())) return false;
  if (header.kind == kText) {
    on_notice(communicator, text);
    return true;
  }
  const std::lock_guard lock(core().mutex);
  communicator.said_bye[peer] = true;
  core().changed.notify_all();
  return true;
}

void listen_to_peers(Communicator& communicator) {
  ::pthread_setname_np(::pthread_self(), "standin-nccl");
  std::vector<pollfd> polls;
  for (const Link& link : communicator.links)
    polls.push_back({.fd = link.control.get(), .events = POLLIN, .revents = 0});
  while (!communicator.aborted) {
    {
      const std::lock_guard lock(core().mutex);
      if (communicator.ended) return;
    }
    if (::poll(polls.data(), polls.size(), 5) <= 0) continue;
    for (size_t peer = 0; peer < polls.size(); ++peer) {
      if (polls[peer].fd < 0 || polls[peer].revents == 0 || read_notice(communicator, peer)) continue;
      lose(communicator, peer);
      polls[peer].fd = -1;
    }
  }
}

void send_control(Communicator& communicator, int peer, NoticeKind kind, const std::string& text) {
  const NoticeHeader header{kind, static_cast<uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += text;
  const std::lock_guard lock(communicator.sending);
  send_all(communicator.links[static_cast<size_t>(peer)].control, bytes.data(), bytes.size(), communicator.stop());
}

std::mutex& error_mutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::string& error_text() {
  static std::string& text = *new std::string;
  return text;
}

}  // namespace

std::string Communicator::name() const {
  return "communicator " + std::to_string(number) + " (rank " + std::to_string(rank) + " of " + std::to_string(ranks) +
         ", GPU " + std::to_string(context->gpu) + ")";
}

Communicator* add_communicator(Context* context, const SitePointer& made) {
  auto* communicator = new Communicator;
  communicator->number = ++all().count;
  communicator->context = context;
  communicator->made = made;
  all().handles.insert(communicator);
  return communicator;
}

Communicator* find_communicator(const void* handle) {
  return all().handles.contains(handle) ? static_cast<Communicator*>(const_cast<void*>(handle)) : nullptr;
}

std::vector<Communicator*> live_communicators() {
  std::vector<Communicator*> live;
  for (const void* handle : all().handles)
    if (auto* one = find_communicator(handle); !one->ended) live.push_back(one);
  return live;
}

std::string list_communicators() {
  std::string text;
  const std::lock_guard lock(core().mutex);
  for (const Communicator* one : live_communicators()) text += "  " + one->name() + ", made by " + to_text(*one->made);
  return text;
}

int connect(Communicator& communicator, const UniqueId& id, int version) {
  communicator.key = secret_of(id);
  Joined joined =
      join(id, communicator.ranks, communicator.rank, communicator.context->gpu, version, communicator.stop());
  if (joined.result != kSuccess) {
    set_last_error(joined.reason);
    return joined.result;
  }
  for (const Member& member : joined.members)
    communicator.members.push_back("rank " + std::to_string(member.rank) + " (" + member.host + ", GPU " +
                                   std::to_string(member.gpu) + ")");
  communicator.links = std::move(joined.links);
  const std::lock_guard lock(core().mutex);
  communicator.said_bye.resize(communicator.links.size());
  communicator.gone.resize(communicator.links.size());
  communicator.ready = true;
  communicator.listener = std::thread(listen_to_peers, std::ref(communicator));
  return kSuccess;
}

void say_bye(Communicator& communicator) {
  for (int peer = 0; peer < communicator.ranks; ++peer)
    if (peer != communicator.rank) send_control(communicator, peer, kBye, "");
  std::unique_lock lock(core().mutex);
  core().changed.wait(lock, [&] {
    if (communicator.aborted) return true;
    for (int peer = 0; peer < communicator.ranks; ++peer)
      if (peer != communicator.rank && !communicator.said_bye[peer] && !communicator.gone[peer]) return false;
    return true;
  });
}

void end(Communicator& communicator) {
  {
    const std::lock_guard lock(core().mutex);
    communicator.ended = true;
  }
  if (communicator.listener.joinable()) communicator.listener.join();
  communicator.links.clear();
}

void send_notice(Communicator& communicator, int peer, const std::string& text) {
  send_control(communicator, peer, kText, text);
}

void set_last_error(const std::string& text) {
  const std::lock_guard lock(error_mutex());
  error_text() = text;
}

const char* last_error() {
  thread_local std::string copy;
  const std::lock_guard lock(error_mutex());
  copy = error_text();
  return copy.c_str();
}

}  // namespace standin::nccl
