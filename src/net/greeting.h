// Carries a handshake's bytes over a stream. Thread rule: one thread at a time.
#pragma once

#include "net/handshake.h"
#include "net/stream.h"

namespace hvd {

// Sends and receives as much as possible now. Not ok: the stream has ended. The result of the handshake is its state(),
// which is valid once outgoing() is empty. Never reads beyond the handshake.
Status carry(Handshake& handshake, Stream& stream);

}  // namespace hvd
