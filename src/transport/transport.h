// Moves bytes between the ranks of one host through shared memory, and to ranks of other hosts through streams. It only
// owns its parts, in order of dependency; each part has its own header and thread rule:
//   MessageRings   small control messages up to the root of the host and down from it
//   Bells          wakes the other ranks of the host
//   Failure        the first failure, shared by the ranks of the host
//   Peers          whether the other processes are alive
//   Heartbeats     whether they are scheduled
//   Waiter         how this rank waits, sleeps and is woken
//   ChannelTable   bulk data between the ranks of a process set on this host (Channel)
//   Mesh           bulk data between hosts
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/origin.h"
#include "base/status.h"
#include "model/host_group.h"
#include "transport/bells.h"
#include "transport/channel.h"
#include "transport/channel_table.h"
#include "transport/control_view.h"
#include "transport/failure.h"
#include "transport/heartbeats.h"
#include "transport/mesh.h"
#include "transport/message_rings.h"
#include "transport/peers.h"
#include "transport/shared_memory.h"
#include "transport/sleeper.h"
#include "transport/waiter.h"

namespace hvd {

struct TransportSettings : WaitSettings {
  ChannelShape channel;
};

class Transport {
 public:
  static Result<std::unique_ptr<Transport>> create(HostGroup group, const TransportSettings& settings);

  // Ranks here are those of this host; in reports they are those of the world.
  int32_t rank() const { return group_.rank; }
  int32_t size() const { return group_.size; }
  bool is_root() const { return group_.rank == 0; }
  int32_t world_rank(int32_t rank) const { return group_.world_rank(rank); }
  const std::string& rank_name(int32_t world_rank) const { return group_.name_of(world_rank); }
  Origin origin_of(OriginKind kind, int32_t world_rank, std::string text = {}) const {
    return group_.origin_of(kind, world_rank, std::move(text));
  }
  Origin placed(Origin origin) const { return group_.placed(std::move(origin)); }
  bool is_crowded() const { return waiter_.is_crowded(); }

  MessageRings& messages() { return messages_; }
  const MessageRings& messages() const { return messages_; }
  Peers& peers() { return peers_; }
  const Peers& peers() const { return peers_; }
  Heartbeats& heartbeats() { return heartbeats_; }
  Waiter& waiter() { return waiter_; }
  ChannelTable& channels() { return channels_; }
  // The streams to ranks of other hosts; a rank that waits moves their bytes. Null: none.
  Status attach(std::unique_ptr<Mesh> mesh);
  Mesh* mesh() const { return mesh_.get(); }

  // Fails every wait of every rank from now on; any thread. A status without an origin is this rank's own failure.
  void abort(const Status& status);
  Status failure() const { return failure_.get(); }
  bool failed() const { return failure_.is_set(); }

  // Descriptors that a forked child must close.
  std::vector<int> descriptors() const;

 private:
  Transport(HostGroup group, const TransportSettings& settings, Mapping control, Sleeper sleeper);
  void abort_broken(int32_t peer);
  void abort_lost(int32_t peer);

  const HostGroup group_;
  Mapping memory_;
  const ControlView control_;
  Sleeper sleeper_;
  std::unique_ptr<Mesh> mesh_;
  MessageRings messages_;
  Bells bells_;
  Failure failure_;
  Peers peers_;
  Heartbeats heartbeats_;
  Waiter waiter_;
  ChannelTable channels_;
};

}  // namespace hvd
