// Messages with descriptors between the processes of one host over Unix sockets (SOCK_SEQPACKET). A parcel has bytes of
// any length, in a memory object whose descriptor is sent. Blocking. Thread rule: any thread.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/wire.h"

namespace hvd {

inline constexpr size_t kMostDescriptors = 129;  // in one message

// False: time-out, or `interrupt` (a descriptor; -1: none) has become readable.
bool wait_readable(const UniqueFd& fd, TimePoint until, int interrupt = -1);
bool is_readable(int fd);  // now; -1 never is
Status was_interrupted();  // the error of a meeting that was interrupted

bool send_message(const UniqueFd& socket, ByteView message, std::span<const int> fds);
// True: a message of exactly this length was received.
bool receive_message(const UniqueFd& socket, std::span<std::byte> message, std::vector<UniqueFd>& fds);
// A message of at most `most` bytes; empty: none was received, or a longer one.
Bytes receive_up_to(const UniqueFd& socket, size_t most, std::vector<UniqueFd>& fds);

Status send_parcel(const UniqueFd& socket, ByteView bytes);
// Errors: timed_out, also after an interrupt; peer_lost: the other side is gone.
Result<Bytes> receive_parcel(const UniqueFd& socket, TimePoint until, int interrupt = -1);

}  // namespace hvd
