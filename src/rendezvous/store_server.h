// Hosts the store: one thread that serves only clients of the job. A request that waits for a value is stored and costs
// nothing. Thread rule: create and destroy it from any thread; the rest happens on its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "net/acceptor.h"
#include "net/credentials.h"
#include "net/socket.h"
#include "rendezvous/store.h"

namespace hvd {

class StoreServer {
 public:
  // Receives connections of workers of an elastic job, which use the same port; called on the store's thread.
  using TakeWorker = std::function<void(Accepted)>;
  static Result<std::unique_ptr<StoreServer>> create(Listener listener, const Credentials& credentials,
                                                     StoreLimits limits = {}, AcceptorLimits acceptor_limits = {},
                                                     TakeWorker take_worker = nullptr);
  ~StoreServer();  // closes the clients' connections
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  uint16_t port() const { return port_; }
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }  // in order of preference

 private:
  StoreServer(uint16_t port, std::vector<Endpoint> endpoints, UniqueFd bell)
      : port_(port), endpoints_(std::move(endpoints)), bell_(std::move(bell)) {}

  uint16_t port_;
  std::vector<Endpoint> endpoints_;
  UniqueFd bell_;  // wakes the thread to stop
  std::jthread thread_;
};

}  // namespace hvd
