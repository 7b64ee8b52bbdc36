// Connections for callers that block in their own threads, such as Python. They are always encrypted: both sides have
// the same key, and what they send (pickles) must not be modified in transit. The handshake is the same as for every
// connection (acceptor.h, connector.h). Thread rule: see each class.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "net/acceptor.h"
#include "net/connector.h"

namespace hvd {

// One thread may send while another receives; close() may be called from any thread.
class BlockingStream {
 public:
  explicit BlockingStream(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}

  // Block until some bytes were moved, and return their number. 0: a signal arrived first, so its handler can run.
  Result<size_t> send(ByteView from);
  Result<size_t> receive(std::span<std::byte> into, TimePoint until);  // timed_out at `until`
  void close();                                                        // send() and receive() fail from now on
  Result<std::string> local_address() const;

 private:
  template <class Move>
  Result<size_t> move(const Move& move, short events, TimePoint until);

  std::mutex mutex_;  // guards stream_; not held while a thread waits
  std::unique_ptr<Stream> stream_;
};

// One thread accepts; close() may be called from any thread.
class BlockingAcceptor {
 public:
  // Without addresses: listens on all interfaces.
  static Result<std::unique_ptr<BlockingAcceptor>> create(const std::vector<IpAddress>& addresses, const Key& key);

  uint16_t port() const { return acceptor_->port(); }
  Result<std::unique_ptr<BlockingStream>> accept();  // blocks; aborted after close()
  void close();

 private:
  BlockingAcceptor(std::unique_ptr<Acceptor> acceptor, UniqueFd closed)
      : acceptor_(std::move(acceptor)), closed_(std::move(closed)) {}

  std::unique_ptr<Acceptor> acceptor_;
  UniqueFd closed_;  // readable after close()
  std::vector<Accepted> accepted_;
};

// Connects to a BlockingAcceptor that is already listening, at the first of its addresses that works. Blocks until
// `until` at most, and less if every address refuses the connection. `name` is for messages.
Result<std::unique_ptr<BlockingStream>> connect_blocking(std::string name,
                                                         const std::vector<std::pair<std::string, uint16_t>>& addresses,
                                                         const Key& key, TimePoint until);

}  // namespace hvd
