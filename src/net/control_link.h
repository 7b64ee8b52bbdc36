// A connection for small messages between the leaders of two hosts, apart from the data so that data cannot hold them
// up. Never blocks: send() keeps what does not go out at once. A link that has nothing to say sends a heartbeat now and
// then, so that a peer that is silent is lost: its host died, it was stopped, or the network is cut. A link also
// carries the two last words of a world: a failure to be spread, and a goodbye, after which the end is no failure.
//
// A frame is a 32-bit length (little-endian), a kind (1 byte), the body, and zeros up to a whole kSendUnit.
//
// Call progress(now) when the descriptor is readable and when next_deadline() or next_beat() has come; it takes the
// bytes in, and receive() then gives the messages. Thread rule: one caller at a time.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/wire.h"
#include "net/hearing.h"
#include "net/stream.h"

namespace hvd {

struct ControlLinkSettings {
  Duration heartbeat = std::chrono::seconds(1);  // something is sent at least this often
  Duration silence = std::chrono::seconds(5);    // nothing was heard for so long: lost
};

class ControlLink {
 public:
  // `peer` names the other side in reports: "rank 4 (hostb, pid 4711)".
  ControlLink(std::unique_ptr<Stream> stream, std::string peer, ControlLinkSettings settings, TimePoint now);

  void send(ByteView message);
  void spread(const Status& failure);  // the world has failed; at most once, later ones are left out
  void say_goodbye();
  // `peer`: the same as data, for the failures that it is the origin of.
  void set_peer(std::string name, Origin peer = {}) {
    peer_ = std::move(name);
    who_ = std::move(peer);
  }
  // From now on; what was silent before does not count.
  void set_limits(ControlLinkSettings settings, TimePoint now);
  bool has_unsent() const { return sent_ < outgoing_.size(); }

  // Not ok (peer_lost, naming the peer and why): the link is over, and every later call says so too. What came before
  // its end can still be received, and failure() may tell the cause. After the peer's goodbye its end is no failure.
  Status progress(TimePoint now);
  bool receive(ByteView& message);                     // the next one; valid until the next receive()
  bool has_messages() const;                           // cheap: may receive() give one?
  const Status& failure() const { return failure_; }   // not ok: what the peer spread
  bool has_departed() const { return has_departed_; }  // the peer said goodbye
  bool is_over() const { return is_over_; }            // the descriptor is no longer worth watching
  TimePoint next_deadline() const;                     // of what could not be sent
  TimePoint next_beat() const;                         // of a heartbeat, ours or the peer's
  int descriptor() const { return stream_->descriptor(); }
  const std::string& peer() const { return peer_; }

 private:
  enum class Kind : uint8_t { message, heartbeat, failure, goodbye };
  struct Frame {
    Kind kind{};
    ByteView body;
  };
  void append(Kind kind, ByteView body);
  void write();
  void read(TimePoint now);
  bool next_frame(const Bytes& from, size_t& at, Frame& frame);  // moves `at`, a place in it, behind the frame
  void scan();                                                   // handles what is no message
  void take_failure(ByteView body);
  void end(std::string_view reason, OriginKind kind = OriginKind::lost);
  void give_up(std::string_view reason);
  Status lost(OriginKind kind, std::string_view reason) const;

  std::unique_ptr<Stream> stream_;
  std::string peer_;
  Origin who_;  // the peer; its kind is set where it fails
  ControlLinkSettings settings_;
  Bytes outgoing_;
  size_t sent_ = 0;                     // of outgoing_
  std::unique_ptr<std::byte[]> space_;  // where a read goes first
  Bytes incoming_;
  size_t scanned_ = 0;  // of incoming_, by scan(): whole frames
  Bytes whole_;         // frames that receive() looks at
  size_t taken_ = 0;    // of them
  bool spoke_ = false;  // since the last progress()
  TimePoint spoke_at_;  // something was last sent
  Hearing hearing_;     // of what is read
  bool has_spread_ = false, has_departed_ = false, is_over_ = false;
  Status failure_;
  Status lost_;
};

}  // namespace hvd
