// The calling side: reaches one peer at whichever of its addresses works. Tries them in the given order, the next one
// before the previous has timed out; the first whose greeting succeeds wins, and only that one sees our proof. What is
// refused or silent is tried again until the deadline (kNever: without end), because the peer may still be starting.
// The one that has our proof is not given up for being slow: to the peer, it may be open already. An address that gives
// a definite answer (another key, version, generation or rank) is not; when none is left it is over at once. Thread
// rule: one thread at a time. Nothing here blocks, except connect().
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
  std::vector<Endpoint> endpoints;  // the preferred first: order_for_connecting()
  Identity identity;                // what we are to it
};

struct ConnectorSettings {
  Duration stagger = std::chrono::milliseconds(250);  // from one address to the next
  Duration patience = seconds(2);                     // for one attempt
  Duration first_pause = std::chrono::milliseconds(10), longest_pause = std::chrono::milliseconds(500);
  bool peer_listens = false;  // already: an address that refuses the connection, or fails in TLS, is not tried again
  SocketOptions options;
};

class Connector {
 public:
  static Result<std::unique_ptr<Connector>> create(Target target, Credentials credentials, TimePoint now,
                                                   TimePoint deadline, ConnectorSettings settings = {});

  int descriptor() const { return poller_.descriptor(); }  // readable when poll() has something to do

  // Nothing while it is under way; then, once, the stream, or an error that lists every address and what came of it.
  std::optional<Result<std::unique_ptr<Stream>>> poll(TimePoint now);
  std::string describe(TimePoint now) const;  // every address, and what came of it so far

 private:
  struct Attempt {
    Endpoint endpoint;
    UniqueFd socket;                 // while it connects
    std::unique_ptr<Stream> stream;  // while it is greeted
    std::optional<Handshake> handshake;
    TimePoint began{}, next{};  // of this try; of the next one
    Duration pause{};
    int tries = 0;
    bool is_over = false;  // by a definite answer
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
  std::optional<size_t> chosen_;  // the one that has our proof
  TimePoint next_start_ = TimePoint::min();
};

// Blocks until it is connected or the deadline has come.
Result<std::unique_ptr<Stream>> connect(Target target, Credentials credentials, TimePoint deadline,
                                        ConnectorSettings settings = {});

}  // namespace hvd
