#include "launcher/workers/meeting.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/joined.h"
#include "launcher/workers/environment.h"
#include "net/socket.h"
#include "net/tls.h"

namespace hvd::launcher {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr size_t kLongestKey = 4096;

Status add_tls(const Options& options, Meeting& meeting) {
  if (!wants_tls(options)) return {};
  auto identity = make_tls_identity();
  if (!identity.ok()) return identity.status();
  meeting.tls_identity = std::move(*identity);
  return {};
}

}  // namespace

bool wants_tls(const Options& options) {
  const char* inherited = find_variable(environ, "HOROVOD_TLS");
  std::string value = inherited ? inherited : "";
  for (const auto& [name, text] : options.variables)
    if (name == "HOROVOD_TLS") value = text;
  return options.tls || (!value.empty() && value != "0");
}

std::vector<std::string> published_addresses(const std::vector<Endpoint>& endpoints) {
  std::vector<std::string> good, all;
  for (const Endpoint& endpoint : endpoints) {
    IpAddress ip = endpoint.address.ip;
    ip.scope = 0;
    all.push_back(to_text(ip));
    if (!ip.is_link_local() && !ip.is_loopback()) good.push_back(all.back());
  }
  return good.empty() ? all : good;
}

Result<Meeting> meet_on_this_machine(const Options& options, const Key& key) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("cannot open", "a socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  ::inet_pton(AF_INET, kLoopback, &address.sin_addr);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(socket.get(), generic, size) != 0 || ::getsockname(socket.get(), generic, &size) != 0)
    return system_error("cannot bind a port of", kLoopback);
  return Meeting{.addresses = kLoopback,
                 .port = ntohs(address.sin_port),
                 .key = key,
                 .tls_identity = {},
                 .interfaces = options.network_interfaces,
                 .reserved = std::move(socket),
                 .store = nullptr};
}

Result<Meeting> meet_on_several_hosts(const Options& options, const Key& key, StoreServer::TakeWorker take_worker) {
  Meeting meeting{.addresses = {},
                  .port = 0,
                  .key = key,
                  .tls_identity = {},
                  .interfaces = options.network_interfaces,
                  .reserved = UniqueFd(),
                  .store = nullptr};
  if (Status status = add_tls(options, meeting); !status.ok()) return status;
  Credentials credentials{.key = meeting.key, .tls = nullptr};
  if (!meeting.tls_identity.empty()) {
    auto tls = TlsContext::create(meeting.tls_identity);
    if (!tls.ok()) return tls.status();
    credentials.tls = std::move(*tls);
  }
  auto listener = listen_on(options.network_interfaces);
  if (!listener.ok()) return listener.status();
  auto store = StoreServer::create(std::move(*listener), credentials, {}, {}, std::move(take_worker));
  if (!store.ok()) return store.status();
  meeting.store = std::move(*store);
  meeting.addresses = joined(published_addresses(meeting.store->endpoints()), ",");
  meeting.port = meeting.store->port();
  return meeting;
}

Result<Key> key_of_job(const Options& options) {
  bool is_agent = options.action == Options::Action::agent;
  if (options.key_file.empty() && options.agents)
    return Status(Code::invalid_argument, "--agents needs --key-file, the key file that the agents use");
  if (options.key_file.empty() && !is_agent) return Key::random();
  bool from_stdin = options.key_file.empty() || options.key_file == "-";
  UniqueFd file(from_stdin ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                           : ::open(options.key_file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return system_error("cannot read the key in", options.key_file);
  struct stat status {};
  if (!from_stdin && ::fstat(file.get(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Status(Code::invalid_argument,
                  fmt::format("others may read the key in {}; make it your own with: chmod 600 {}", options.key_file,
                              options.key_file));
  std::array<char, kLongestKey> text;
  size_t length = 0;
  while (length < text.size()) {
    ssize_t count = ::read(file.get(), text.data() + length, text.size() - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read the key in", options.key_file);
    if (count == 0) break;
    length += static_cast<size_t>(count);
    if (from_stdin && std::find(text.data(), text.data() + length, '\n') != text.data() + length) break;
  }
  std::string_view key(text.data(), length);
  key = key.substr(0, key.find_first_of("\r\n \t"));
  auto parsed = Key::from_hex(key);
  ::explicit_bzero(text.data(), text.size());
  if (parsed.ok()) return parsed;
  return Status(Code::invalid_argument, fmt::format("no key in {}: expected 64 hexadecimal digits, as written by "
                                                    "openssl rand -hex 32",
                                                    from_stdin ? "stdin" : options.key_file));
}

}  // namespace hvd::launcher
