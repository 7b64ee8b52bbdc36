// Messages between the processes of one host over Unix sockets (SOCK_SEQPACKET), with descriptors. A parcel carries
// bytes of any length, in a memory object whose descriptor is sent. Blocking. Thread rule: any thread.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

inline constexpr size_t kMostDescriptors = 129;  // in one message

// False: the time is up, or `interrupt` (a descriptor; -1: none) has become readable.
bool wait_readable(const UniqueFd& fd, TimePoint until, int interrupt = -1);
bool is_readable(int fd);  // now; -1 never is
Status was_interrupted();  // what a meeting that was ended this way says

bool send_message(const UniqueFd& socket, ByteView message, std::span<const int> fds);
// True: a message of exactly this length came.
bool receive_message(const UniqueFd& socket, std::span<std::byte> message, std::vector<UniqueFd>& fds);
// A message of up to `most` bytes; empty: none came, or a longer one.
Bytes receive_up_to(const UniqueFd& socket, size_t most, std::vector<UniqueFd>& fds);

Status send_parcel(const UniqueFd& socket, ByteView bytes);
// timed_out, which an interrupt is too, or peer_lost: the other side is gone.
Result<Bytes> receive_parcel(const UniqueFd& socket, TimePoint until, int interrupt = -1);

}  // namespace hvd
