// Opens data connections between this rank and ranks of other hosts, on demand. Of two ranks the lower one connects and
// the higher one accepts, so both must request the connection; they do, because both enter the same collective. Every
// address of the peer is tried; the error lists each with its result. A pair may have several connections (stripes);
// the connecting rank chooses their number.
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
  int32_t streams = 1;  // connections to each peer that this rank connects to
  Duration timeout = seconds(30);
  SocketOptions options;
  std::string congestion = "auto";  // see congestion.h
};

class Dialer {
 public:
  // `early`: connections that the acceptor has already yielded.
  static Result<std::unique_ptr<Dialer>> create(std::unique_ptr<Acceptor> acceptor, std::vector<Accepted> early,
                                                const std::vector<HostRecord>& hosts, Credentials credentials,
                                                DialerSettings settings);

  void open(int32_t peer, TimePoint now);  // once per peer; poll() returns the result
  // From now on, slow connections are retried and waited for without limit: the world is running, and the peer is busy
  // or stopped. Lost peers are detected by their silence. A warning reports the attempts so far, after each
  // `warn_every`.
  void be_patient(Duration warn_every);
  bool is_busy() const { return !openings_.empty(); }
  int descriptor() const { return poller_.descriptor(); }  // readable when poll() has something to do

  struct Opened {
    int32_t peer = -1;
    Result<std::vector<std::unique_ptr<Stream>>> stripes;
  };
  std::optional<Opened> poll(TimePoint now);  // the next one that is finished
  void list_descriptors(std::vector<int>& into) const;

 private:
  struct Peer {
    std::string name;
    std::vector<Endpoint> endpoints;
  };
  struct Opening {
    TimePoint began, deadline;
    TimePoint warn_at;
    std::vector<std::unique_ptr<Connector>> connectors;  // by stripe; until the first is connected it is the only one
    std::vector<std::unique_ptr<Stream>> stripes;        // null: not yet connected
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
  Duration warn_every_ = Duration::max();  // for openings that take long
  std::map<int32_t, Peer> peers_;          // by rank
  std::vector<InterfaceAddress> interfaces_;
  std::map<int32_t, Opening> openings_;                              // requested, not yet open
  std::map<int32_t, std::vector<std::unique_ptr<Stream>>> arrived_;  // from peers that connect to this rank
};

}  // namespace hvd
