// Opens the data connections between this rank and ranks of other hosts, on demand: of two ranks the lower one calls
// and the higher one is called, so both must want it, and they do because both enter the same collective. Every address
// of the peer is tried; the error lists each and what came of it. A pair may have several connections (stripes); the
// calling rank chooses their number.
// Nothing here blocks. Thread rule: one caller at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/acceptor.h"
#include "net/connector.h"
#include "net/host_table.h"
#include "net/interfaces.h"

namespace hvd {

struct DialerSettings {
  int32_t rank = 0;  // of this process
  Generation generation{0};
  int32_t streams = 1;  // connections to each peer that we call
  Duration timeout = seconds(30);
  SocketOptions options;
  std::string congestion = "auto";  // see congestion.h
};

class Dialer {
 public:
  // `early`: connections that the acceptor has yielded before.
  static Result<std::unique_ptr<Dialer>> create(std::unique_ptr<Acceptor> acceptor, std::vector<Accepted> early,
                                                const std::vector<HostRecord>& hosts, Credentials credentials,
                                                DialerSettings settings);

  void open(int32_t peer, TimePoint now);  // once per peer; poll() tells the outcome
  // From now on, connections that take long are tried for and waited for without end: the world runs, and the peer is
  // busy or stopped. That it is lost is found by its silence. A warning says what came of it so far, after each
  // `warn_every`.
  void be_patient(Duration warn_every);
  bool is_busy() const { return !openings_.empty(); }
  int descriptor() const { return poller_.descriptor(); }  // readable when poll() has something to do

  struct Opened {
    int32_t peer = -1;
    Result<std::vector<std::unique_ptr<Stream>>> stripes;
  };
  std::optional<Opened> poll(TimePoint now);  // the next that is finished
  void list_descriptors(std::vector<int>& into) const;

 private:
  struct Peer {
    std::string name;
    std::vector<Endpoint> endpoints;
  };
  struct Opening {
    TimePoint began, deadline;
    TimePoint warn_at;
    std::vector<std::unique_ptr<Connector>> connectors;  // by stripe; the first is alone until it is connected
    std::vector<std::unique_ptr<Stream>> stripes;        // null: not yet
  };
  Dialer(Poller poller, std::unique_ptr<Acceptor> acceptor, Credentials credentials, DialerSettings settings);
  Status start_calling(int32_t peer, Opening& opening, TimePoint now);
  Status call(int32_t peer, Opening& opening, size_t stripe, std::vector<Endpoint> endpoints, TimePoint now);
  Status advance(int32_t peer, Opening& opening, TimePoint now);
  Status check_called(int32_t peer, Opening& opening, TimePoint now);
  std::string not_called(int32_t peer, const Opening& opening, TimePoint now) const;
  void warn_late(int32_t peer, Opening& opening, TimePoint now);
  void take_in(std::vector<Accepted> accepted);
  void set_alarm();

  Poller poller_;
  std::unique_ptr<Acceptor> acceptor_;
  Credentials credentials_;
  DialerSettings settings_;
  Duration warn_every_ = Duration::max();  // of openings that take long
  std::map<int32_t, Peer> peers_;          // by rank
  std::vector<InterfaceAddress> interfaces_;
  std::map<int32_t, Opening> openings_;                              // what is wanted and not yet there
  std::map<int32_t, std::vector<std::unique_ptr<Stream>>> arrived_;  // from peers that call us
};

}  // namespace hvd
