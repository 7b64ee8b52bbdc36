#include "launcher/observe/http_server.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "net/address.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMostClients = 64;
constexpr size_t kMostUnsent = 4 << 20;  // to a stream whose client does not read
constexpr Duration kClientPatience = std::chrono::seconds(10);
constexpr int kBacklog = 16;

Status cannot(std::string_view what) {
  return {Code::unknown, fmt::format("cannot {}: {}", what, std::strerror(errno))};
}

bool is_same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

}  // namespace

Result<HttpServer> HttpServer::listen(const std::string& address, uint16_t port, Handler handler) {
  auto ip = parse_ip(address);
  if (!ip.ok()) return ip.status();
  RawAddress raw = raw_of({.ip = *ip, .port = port});
  UniqueFd socket(::socket(raw.get()->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int yes = 1;
  if (socket) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (!socket || ::bind(socket.get(), raw.get(), raw.length) != 0 || ::listen(socket.get(), kBacklog) != 0)
    return cannot(fmt::format("listen on {}", to_text(SocketAddress{.ip = *ip, .port = port})));
  RawAddress bound;
  ::getsockname(socket.get(), bound.get(), &bound.length);
  HttpServer server(std::move(socket), std::move(handler));
  server.port_ = bound.get()->sa_family == AF_INET ? ntohs(reinterpret_cast<sockaddr_in*>(bound.get())->sin_port)
                                                   : ntohs(reinterpret_cast<sockaddr_in6*>(bound.get())->sin6_port);
  return server;
}

Result<HttpServer> HttpServer::listen_locally(const std::string& name, Handler handler) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return Status(Code::invalid_argument, "the name is too long");
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(socket.get(), kBacklog) != 0)
    return cannot(fmt::format("listen as {}", name));
  HttpServer server(std::move(socket), std::move(handler));
  server.is_local_ = true;
  return server;
}

bool HttpServer::has_streams() const {
  return std::any_of(clients_.begin(), clients_.end(), [](const Client& client) { return client.is_stream; });
}

void HttpServer::add_to(PollSet& set) {
  TimePoint now = Clock::now();
  std::erase_if(clients_, [&](const Client& client) { return client.is_dead || now >= client.give_up; });
  set.add(socket_.get(), POLLIN, [this] { accept(); });
  for (Client& client : clients_) {
    auto events = static_cast<short>(client.out.empty() ? POLLIN : POLLIN | POLLOUT);
    set.add(client.socket.get(), events, [this, &client] {
      if (!client.out.empty()) write(client);
      if (!client.is_dead) read(client);
    });
    set.wake_at(client.give_up);
  }
}

void HttpServer::accept() {
  UniqueFd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket || clients_.size() >= kMostClients || (is_local_ && !is_same_user(socket.get()))) return;
  Client& client = clients_.emplace_back();
  client.id = ++last_id_;
  client.socket = std::move(socket);
  client.give_up = Clock::now() + kClientPatience;
}

void HttpServer::read(Client& client) {
  std::array<char, 4096> buffer;
  ssize_t count = ::read(client.socket.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    client.is_dead = true;
    return;
  }
  if (client.is_stream || client.is_waiting || client.is_closing) return;  // nothing more is asked
  client.in.append(buffer.data(), static_cast<size_t>(count));
  ParsedRequest parsed = parse_request(client.in);
  if (parsed.state == ParsedRequest::State::incomplete) return;
  if (parsed.state == ParsedRequest::State::bad)
    return reply(client, {.status = parsed.error, .body = "this is no request for this server\n"});
  reply(client, handler_(parsed.request, client.id));
}

void HttpServer::reply(Client& client, const HttpReply& reply) {
  client.is_waiting = reply.is_later;
  if (reply.is_later) {
    client.give_up = Clock::now() + 6 * kClientPatience;
    return;
  }
  client.out += reply_text(reply);
  client.is_stream = reply.is_stream;
  client.is_closing = !reply.is_stream;
  client.give_up = reply.is_stream ? kNever : Clock::now() + kClientPatience;
  write(client);
}

void HttpServer::answer(uint64_t to, const HttpReply& reply) {
  for (Client& client : clients_)
    if (client.id == to && client.is_waiting) return this->reply(client, reply);
}

void HttpServer::publish(std::string_view data) {
  std::string event = event_text(data);
  for (Client& client : clients_) {
    if (!client.is_stream || client.is_dead) continue;
    if (client.out.size() > kMostUnsent) {
      client.is_dead = true;
      continue;
    }
    client.out += event;
    write(client);
  }
}

void HttpServer::write(Client& client) {
  ssize_t count = ::send(client.socket.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
  if (count < 0 && errno != EAGAIN && errno != EINTR) client.is_dead = true;
  if (count > 0) client.out.erase(0, static_cast<size_t>(count));
  if (client.out.empty() && client.is_closing) {
    ::shutdown(client.socket.get(), SHUT_WR);
    client.is_dead = true;
  }
}

std::string control_name(uid_t user, pid_t pid) { return fmt::format("horovodrun.{}.{}", user, pid); }

}  // namespace hvd::launcher
