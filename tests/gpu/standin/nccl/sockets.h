// TCP sockets between the processes of a communicator. Every wait ends early when `stop` says so.
#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace standin::nccl {

class Socket {
 public:
  explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() { close(); }
  int get() const { return descriptor_; }
  void close();

 private:
  int descriptor_;
};

using Stop = std::function<bool()>;

struct Address {
  uint32_t ip = 0;  // network order, as port
  uint16_t port = 0;
};

// Listens at the address of NCCL_SOCKET_IFNAME's interface, or at 127.0.0.1.
Socket listen_anywhere(Address* address);
Socket connect_to(const Address& address, const Stop& stop);  // not valid if it failed
Socket accept_from(const Socket& listener, const Stop& stop);

// False when the other end is gone or `stop` said so.
bool send_all(const Socket& socket, const void* bytes, size_t count, const Stop& stop);
bool receive_all(const Socket& socket, void* bytes, size_t count, const Stop& stop);

}  // namespace standin::nccl
