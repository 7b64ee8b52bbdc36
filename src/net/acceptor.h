// The accepting side: listens, performs the handshake, and yields the connections of this job. Other connections (wrong
// bytes, wrong key, silence) cost one descriptor and less than a kilobyte (with TLS about 100) for a few seconds, and
// an occasional log line. If too many are half-open, the oldest is closed: peers of this job finish in milliseconds,
// and retry. A peer may also retry after a connection that was cut at the last moment, so a second connection with the
// same identity can arrive: the later one is the one that the peer uses. Thread rule: one thread at a time. Nothing
// here blocks.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "net/credentials.h"
#include "net/handshake.h"
#include "net/poller.h"
#include "net/socket.h"
#include "net/stream.h"

namespace hvd {

struct Accepted {
  std::unique_ptr<Stream> stream;
  Identity identity;
  SocketAddress from;
};

struct AcceptorLimits {
  size_t half_open = 256;          // connections in the handshake
  Duration patience = seconds(5);  // for one handshake
  Duration log_pause = seconds(10);
  SocketOptions options;
};

class Acceptor {
 public:
  static Result<std::unique_ptr<Acceptor>> create(Listener listener, Credentials credentials, Welcome welcome,
                                                  AcceptorLimits limits = {});

  int descriptor() const { return poller_.descriptor(); }  // readable when poll() has something to do
  const std::vector<Endpoint>& endpoints() const { return listener_.endpoints; }
  uint16_t port() const { return listener_.port; }
  size_t half_open() const { return pending_.size(); }
  uint64_t dropped() const { return dropped_; }  // connections that failed the handshake so far

  void poll(TimePoint now, std::vector<Accepted>& accepted);  // appends to `accepted`

 private:
  struct Pending {
    std::unique_ptr<Stream> stream;
    Handshake handshake;
    SocketAddress from;
    TimePoint until;
  };

  Acceptor(Poller poller, Listener listener, Credentials credentials, Welcome welcome, AcceptorLimits limits);
  void accept_from(const UniqueFd& socket, TimePoint now, std::vector<Accepted>& accepted);
  void greet(UniqueFd socket, const SocketAddress& from, TimePoint now, std::vector<Accepted>& accepted);
  void advance(std::map<uint64_t, Pending>::iterator pending, TimePoint now, std::vector<Accepted>& accepted);
  void drop(std::map<uint64_t, Pending>::iterator pending, std::string_view reason, TimePoint now);
  void report(const SocketAddress& from, std::string_view reason, TimePoint now);
  void set_alarm();

  Poller poller_;
  Listener listener_;
  Credentials credentials_;
  Welcome welcome_;
  AcceptorLimits limits_;
  std::map<uint64_t, Pending> pending_;  // by order of arrival, which is also the order of their deadlines
  uint64_t next_;
  TimePoint accept_again_ = kNever;  // set while accepting is suspended
  uint64_t dropped_ = 0, unreported_ = 0;
  TimePoint report_again_ = TimePoint::min();
};

}  // namespace hvd
