#include "nccl/bootstrap.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

#include "core/faults.h"

namespace standin::nccl {
namespace {

constexpr char kMagic[8] = {'s', 't', 'a', 'n', 'd', '-', 'i', 'n'};

struct IdContent {
  char magic[8];
  uint64_t secret;
  Address root;
};
static_assert(sizeof(IdContent) <= sizeof(UniqueId));

IdContent content_of(const UniqueId& id) {
  IdContent content;
  std::memcpy(&content, id.internal, sizeof content);
  return content;
}

bool never() { return false; }

// The thread behind an id: collects all members, then answers each.
void serve(Socket listener, uint64_t secret) {
  ::pthread_setname_np(::pthread_self(), "standin-root");
  std::vector<Member> members;
  std::vector<Socket> sockets;
  size_t come = 0;
  while (members.empty() || come < members.size()) {
    Socket socket = accept_from(listener, never);
    Member member{};
    if (socket.get() < 0 || !receive_all(socket, &member, sizeof member, never) || member.secret != secret) continue;
    if (members.empty()) {
      members.resize(static_cast<size_t>(member.ranks));
      sockets.resize(members.size());
    }
    const auto rank = static_cast<size_t>(member.rank);
    if (rank >= members.size() || sockets[rank].get() >= 0) continue;
    members[rank] = member;
    sockets[rank] = std::move(socket);
    ++come;
  }
  // Rank 0 comes last: it is usually in this process, and may end it at once.
  for (size_t rank = sockets.size(); rank-- > 0;)
    send_all(sockets[rank], members.data(), members.size() * sizeof(Member), never);
}

struct Greeting {
  uint64_t secret;
  int rank;
  int control;
};

bool connect_lower(const Member& self, Joined& joined, const Stop& stop) {
  for (int peer = 0; peer < self.rank; ++peer) {
    for (int control : {0, 1}) {
      Socket socket = connect_to(joined.members[static_cast<size_t>(peer)].address, stop);
      const Greeting greeting{self.secret, self.rank, control};
      if (socket.get() < 0 || !send_all(socket, &greeting, sizeof greeting, stop)) return false;
      Link& link = joined.links[static_cast<size_t>(peer)];
      (control != 0 ? link.control : link.data) = std::move(socket);
    }
  }
  return true;
}

bool accept_higher(const Member& self, const Socket& listener, Joined& joined, const Stop& stop) {
  for (int missing = 2 * (self.ranks - 1 - self.rank); missing > 0;) {
    Socket socket = accept_from(listener, stop);
    Greeting greeting{};
    if (stop()) return false;
    if (socket.get() < 0 || !receive_all(socket, &greeting, sizeof greeting, stop) || greeting.secret != self.secret)
      continue;
    Link& link = joined.links.at(static_cast<size_t>(greeting.rank));
    (greeting.control != 0 ? link.control : link.data) = std::move(socket);
    --missing;
  }
  return true;
}

Joined failed(int result, std::string reason) {
  Joined joined;
  joined.result = result;
  joined.reason = std::move(reason);
  return joined;
}

// What NCCL refuses once it knows all members.
void check(Joined& joined) {
  for (const Member& a : joined.members) {
    for (const Member& b : joined.members) {
      if (a.rank >= b.rank) continue;
      if (a.version != b.version) {
        joined.result = kInvalidUsage;
        joined.reason = "Mismatched NCCL version detected : rank " + std::to_string(a.rank) + " " +
                        std::to_string(a.version) + " rank " + std::to_string(b.rank) + " " + std::to_string(b.version);
      } else if (a.gpu == b.gpu && std::strcmp(a.host, b.host) == 0) {
        joined.result = kInvalidUsage;
        joined.reason = "Duplicate GPU detected : rank " + std::to_string(a.rank) + " and rank " +
                        std::to_string(b.rank) + " both on CUDA device " + std::to_string((a.gpu + 1) * 0x1000);
      }
    }
  }
}

}  // namespace

UniqueId make_id() {
  IdContent content{};
  std::memcpy(content.magic, kMagic, sizeof kMagic);
  if (::getrandom(&content.secret, sizeof content.secret, 0) < 0) content.secret = static_cast<uint64_t>(::getpid());
  Socket listener = listen_anywhere(&content.root);
  std::thread(serve, std::move(listener), content.secret).detach();  // ends when all ranks have come, or never
  UniqueId id{};
  std::memcpy(id.internal, &content, sizeof content);
  return id;
}

bool is_id(const UniqueId& id) { return std::memcmp(id.internal, kMagic, sizeof kMagic) == 0; }
uint64_t secret_of(const UniqueId& id) { return content_of(id).secret; }

Joined join(const UniqueId& id, int ranks, int rank, int gpu, int version, const Stop& stop) {
  const IdContent content = content_of(id);
  Member self{.secret = content.secret,
              .ranks = ranks,
              .rank = rank,
              .address = {},
              .host = {},
              .gpu = gpu,
              .version = version};
  ::gethostname(self.host, sizeof self.host - 1);
  const Socket listener = listen_anywhere(&self.address);
  const Socket root = connect_to(content.root, stop);
  if (root.get() < 0) return failed(kSystemError, "Connect to the process that made the id failed");
  Joined joined;
  joined.members.resize(static_cast<size_t>(ranks));
  joined.links.resize(static_cast<size_t>(ranks));
  if (!send_all(root, &self, sizeof self, stop) ||
      !receive_all(root, joined.members.data(), joined.members.size() * sizeof(Member), stop))
    return failed(kRemoteError, "The process that made the id is gone");
  const auto fault = fault_at("nccl.connect");
  if (fault && fault->fault == Fault::code) return failed(fault->value, "stand-in: fault nccl.connect");
  while (fault && fault->fault == Fault::never && !stop()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  check(joined);
  if (joined.result != kSuccess) return joined;
  if (!connect_lower(self, joined, stop) || !accept_higher(self, listener, joined, stop))
    return failed(kRemoteError, "A rank was lost while connecting");
  return joined;
}

}  // namespace standin::nccl
