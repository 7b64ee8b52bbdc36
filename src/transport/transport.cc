#include "transport/transport.h"

#include <fmt/core.h>

#include <utility>

#include "base/round_up.h"

namespace hvd {

Result<std::unique_ptr<Transport>> Transport::create(HostGroup group, const TransportSettings& settings) {
  auto control = map_shared_memory(group.memory, 0, round_up(ControlBlock::bytes(group.size), 4096));
  if (!control.ok()) return control.status();
  auto sleeper = Sleeper::create(group.bells[static_cast<size_t>(group.rank)], group.sockets);
  if (!sleeper.ok()) return sleeper.status();
  return std::unique_ptr<Transport>(
      new Transport(std::move(group), settings, std::move(*control), std::move(*sleeper)));
}

Transport::Transport(HostGroup group, const TransportSettings& settings, Mapping control, Sleeper sleeper)
    : group_(std::move(group)),
      memory_(std::move(control)),
      control_{reinterpret_cast<ControlBlock*>(memory_.data()), group_.rank, group_.size},
      sleeper_(std::move(sleeper)),
      messages_(control_, [this](int32_t peer) { abort_broken(peer); }),
      bells_(control_, group_.bells, messages_),
      failure_(control_, bells_),
      peers_(group_, sleeper_, [this](int32_t peer) { abort_lost(peer); }),
      heartbeats_(control_, group_),
      waiter_({control_, group_, sleeper_, messages_, bells_, failure_, peers_}, settings),
      channels_({group_.memory, memory_.size(), settings.channel, group_.rank, waiter_, bells_}) {}

Status Transport::attach(std::unique_ptr<Mesh> mesh) {
  mesh_ = std::move(mesh);
  peers_.attach(mesh_.get());
  return waiter_.attach(mesh_.get());
}

void Transport::abort(const Status& status) {
  if (status.origin().kind != OriginKind::none) return failure_.set(status);
  failure_.set({status.code(), std::string(status.message()), origin_of(OriginKind::internal, world_rank(rank()))});
}

void Transport::abort_broken(int32_t peer) {
  abort({Code::unknown, fmt::format("{} sent a message that is too long", rank_name(world_rank(peer))),
         origin_of(OriginKind::internal, world_rank(peer))});
}

void Transport::abort_lost(int32_t peer) {
  abort({Code::peer_lost,
         fmt::format("{} is gone: its process ended without shutting Horovod down", rank_name(world_rank(peer))),
         origin_of(OriginKind::lost, world_rank(peer))});
}

std::vector<int> Transport::descriptors() const {
  std::vector<int> fds = sleeper_.descriptors();
  fds.push_back(group_.memory.get());
  for (const UniqueFd& bell : group_.bells) fds.push_back(bell.get());
  for (const UniqueFd& socket : group_.sockets) {
    if (socket) fds.push_back(socket.get());
  }
  if (mesh_ != nullptr) mesh_->list_descriptors(fds);
  return fds;
}

}  // namespace hvd
