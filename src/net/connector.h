// The connecting side: reaches one peer at any of its addresses. Tries them in the given order, the next one before the
// previous has timed out. The first whose handshake succeeds wins, and only that one receives our proof. Refused or
// silent addresses are retried until the deadline (kNever: forever), because the peer may still be starting. An attempt
// that has sent our proof is not dropped for being slow: on the peer's side it may already be open. An address with a
// definite answer (another key, version, generation or rank) is not retried; if none is left, connecting fails at once.
// Thread rule: one thread at a time. Nothing here blocks, except connect().
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/credentials.h"
#include "net/handshake.h"
#include "net/poller.h"
#include "net/socket.h"
#include "net/stream.h"

namespace hvd {

struct Target {
  std::string name;                 // for messages: "rank 5 on node-b"
  std::vector<Endpoint> endpoints;  // in order of preference: order_for_connecting()
  Identity identity;                // what we are to the peer
};

struct ConnectorSettings {
  Duration stagger = std::chrono::milliseconds(250);  // between the starts of two addresses
  Duration patience = seconds(2);                     // for one attempt
  Duration first_pause = std::chrono::milliseconds(10), longest_pause = std::chrono::milliseconds(500);
  // the peer already listens: an address that refuses the connection, or fails in TLS, is not tried again
  bool peer_listens = false;
  SocketOptions options;
};

class Connector {
 public:
  static Result<std::unique_ptr<Connector>> create(Target target, Credentials credentials, TimePoint now,
                                                   TimePoint deadline, ConnectorSettings settings = {});

  int descriptor() const { return poller_.descriptor(); }  // readable when poll() has something to do

  // Empty while connecting; then, once, the stream, or an error that lists every address and its result.
  std::optional<Result<std::unique_ptr<Stream>>> poll(TimePoint now);
  std::string describe(TimePoint now) const;  // every address and its result so far

 private:
  struct Attempt {
    Endpoint endpoint;
    UniqueFd socket;                 // while connecting
    std::unique_ptr<Stream> stream;  // during the handshake
    std::optional<Handshake> handshake;
    TimePoint began{}, next{};  // of this attempt; of the next one
    Duration pause{};
    int tries = 0;
    bool is_over = false;  // it gave a definite answer
    std::string result = "not tried";

    bool is_under_way() const { return socket || stream != nullptr; }
  };

  Connector(Poller poller, Target target, Credentials credentials, TimePoint now, TimePoint deadline,
            ConnectorSettings settings);
  void start(size_t index, TimePoint now);
  void advance(size_t index, TimePoint now);
  Status greet(Attempt& attempt, size_t index);
  void fail(Attempt& attempt, TimePoint now, std::string reason, bool is_over);
  void expire(TimePoint now);
  void choose(TimePoint now);
  void start_due(TimePoint now);
  bool is_hopeless() const;
  Status failure(TimePoint now) const;
  void set_alarm();

  Poller poller_;
  Target target_;
  Credentials credentials_;
  TimePoint began_, deadline_;
  ConnectorSettings settings_;
  std::vector<Attempt> attempts_;
  std::optional<size_t> chosen_;  // the attempt that has sent our proof
  TimePoint next_start_ = TimePoint::min();
};

// Blocks until connected or until the deadline.
Result<std::unique_ptr<Stream>> connect(Target target, Credentials credentials, TimePoint deadline,
                                        ConnectorSettings settings = {});

}  // namespace hvd
