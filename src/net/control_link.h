// A connection for small messages between the leaders of two hosts, separate from the data so that data cannot delay
// them. Never blocks: send() queues what cannot be sent at once. An idle link sends heartbeats, so a silent peer is
// considered lost: its host died, it was stopped, or the network is cut. A link also carries the two final messages of
// a world: a failure to be propagated, and a goodbye, after which the end of the connection is not a failure.
//
// A frame is a 32-bit length (little-endian), a kind (1 byte), the body, and zeros up to a whole kSendUnit.
//
// Call progress(now) when the descriptor is readable and when next_deadline() or next_beat() has come; it reads the
// bytes, and receive() then returns the messages. Thread rule: one caller at a time.
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
  Duration silence = std::chrono::seconds(5);    // a peer is lost after this time without data
};

class ControlLink {
 public:
  // `peer` names the other side in reports: "rank 4 (hostb, pid 4711)".
  ControlLink(std::unique_ptr<Stream> stream, std::string peer, ControlLinkSettings settings, TimePoint now);

  void send(ByteView message);
  void spread(const Status& failure);  // sends the failure of the world; only the first call has an effect
  void say_goodbye();
  // `peer`: the same as data, for failures that the peer caused.
  void set_peer(std::string name, Origin peer = {}) {
    peer_ = std::move(name);
    who_ = std::move(peer);
  }
  // From now on; earlier silence does not count.
  void set_limits(ControlLinkSettings settings, TimePoint now);
  bool has_unsent() const { return sent_ < outgoing_.size(); }

  // Not ok (peer_lost, with the peer and the reason): the link has ended, and every later call returns the same.
  // Messages that arrived before the end can still be received, and failure() may give the cause. After the peer's
  // goodbye the end is not a failure.
  Status progress(TimePoint now);
  bool receive(ByteView& message);                     // the next message; valid until the next receive()
  bool has_messages() const;                           // cheap: might receive() return one?
  const Status& failure() const { return failure_; }   // not ok: the failure that the peer sent
  bool has_departed() const { return has_departed_; }  // the peer said goodbye
  bool is_over() const { return is_over_; }            // the descriptor need not be watched any more
  TimePoint next_deadline() const;                     // for unsent data
  TimePoint next_beat() const;                         // for heartbeats, ours or the peer's
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
  bool next_frame(const Bytes& from, size_t& at, Frame& frame);  // advances `at`, an offset into `from`, past the frame
  void scan();                                                   // handles frames that are not messages
  void take_failure(ByteView body);
  void end(std::string_view reason, OriginKind kind = OriginKind::lost);
  void give_up(std::string_view reason);
  Status lost(OriginKind kind, std::string_view reason) const;

  std::unique_ptr<Stream> stream_;
  std::string peer_;
  Origin who_;  // the peer; the kind is set when it fails
  ControlLinkSettings settings_;
  Bytes outgoing_;
  size_t sent_ = 0;                     // bytes of outgoing_ already sent
  std::unique_ptr<std::byte[]> space_;  // buffer for reads
  Bytes incoming_;
  size_t scanned_ = 0;  // bytes of incoming_ that scan() has processed: whole frames
  Bytes whole_;         // frames for receive()
  size_t taken_ = 0;    // bytes of whole_ already received
  bool spoke_ = false;  // since the last progress()
  TimePoint spoke_at_;  // time of the last send
  Hearing hearing_;     // of received data
  bool has_spread_ = false, has_departed_ = false, is_over_ = false;
  Status failure_;
  Status lost_;
};

}  // namespace hvd
