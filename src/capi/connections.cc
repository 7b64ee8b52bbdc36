// Connections between processes that share a key, behind the C ABI: converts and forwards. See net/blocking.h.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "errors.h"
#include "horovod/horovod.h"
#include "net/blocking.h"

struct hvd_listener {
  std::unique_ptr<hvd::BlockingAcceptor> acceptor;
};

struct hvd_connection {
  std::unique_ptr<hvd::BlockingStream> stream;
  std::string local_address;  // storage for the text
};

namespace {

using namespace hvd;

constexpr double kLongestTimeout = 4294967296.0;

TimePoint deadline(double timeout) {
  return timeout < 0 || !(timeout < kLongestTimeout) ? kNever : Clock::now() + seconds(timeout);
}

Result<uint16_t> read_port(int32_t port) {
  if (port > 0 && port <= 65535) return static_cast<uint16_t>(port);
  return Status(Code::invalid_argument, "a port is between 1 and 65535");
}

}  // namespace

extern "C" {

hvd_code hvd_listen(const char* const* addresses, int32_t count, const char* key, hvd_listener** listener,
                    int32_t* port) {
  return guarded([&]() -> Status {
    std::vector<IpAddress> parsed;
    for (int32_t i = 0; i < count; i++) {
      auto ip = parse_ip(addresses[i]);
      if (!ip.ok()) return ip.status();
      parsed.push_back(*ip);
    }
    auto secret = Key::from_hex(key);
    if (!secret.ok()) return secret.status();
    auto acceptor = BlockingAcceptor::create(parsed, *secret);
    if (!acceptor.ok()) return acceptor.status();
    *port = (*acceptor)->port();
    *listener = new hvd_listener{std::move(*acceptor)};
    return {};
  });
}

hvd_code hvd_accept(hvd_listener* listener, hvd_connection** connection) {
  return guarded([&]() -> Status {
    auto stream = listener->acceptor->accept();
    if (!stream.ok()) return stream.status();
    *connection = new hvd_connection{.stream = std::move(*stream)};
    return {};
  });
}

void hvd_listener_close(hvd_listener* listener) { listener->acceptor->close(); }

void hvd_listener_destroy(hvd_listener* listener) { delete listener; }

hvd_code hvd_connect(const char* name, const char* const* hosts, const int32_t* ports, int32_t count, const char* key,
                     double timeout, hvd_connection** connection) {
  return guarded([&]() -> Status {
    std::vector<std::pair<std::string, uint16_t>> addresses;
    for (int32_t i = 0; i < count; i++) {
      auto port = read_port(ports[i]);
      if (!port.ok()) return port.status();
      addresses.emplace_back(hosts[i], *port);
    }
    auto secret = Key::from_hex(key);
    if (!secret.ok()) return secret.status();
    auto stream = connect_blocking(name, addresses, *secret, deadline(timeout));
    if (!stream.ok()) return stream.status();
    *connection = new hvd_connection{.stream = std::move(*stream)};
    return {};
  });
}

hvd_code hvd_connection_send(hvd_connection* connection, const void* data, int64_t size, int64_t* sent) {
  return guarded([&]() -> Status {
    auto moved = connection->stream->send({static_cast<const std::byte*>(data), static_cast<size_t>(size)});
    if (!moved.ok()) return moved.status();
    *sent = static_cast<int64_t>(*moved);
    return {};
  });
}

hvd_code hvd_connection_receive(hvd_connection* connection, void* data, int64_t size, double timeout,
                                int64_t* received) {
  return guarded([&]() -> Status {
    std::span<std::byte> into(static_cast<std::byte*>(data), static_cast<size_t>(size));
    auto moved = connection->stream->receive(into, deadline(timeout));
    if (!moved.ok()) return moved.status();
    *received = static_cast<int64_t>(*moved);
    return {};
  });
}

const char* hvd_connection_local_address(hvd_connection* connection) {
  auto address = connection->stream->local_address();
  connection->local_address = address.ok() ? *address : "";
  return connection->local_address.c_str();
}

void hvd_connection_close(hvd_connection* connection) { connection->stream->close(); }

void hvd_connection_destroy(hvd_connection* connection) { delete connection; }

}  // extern "C"
