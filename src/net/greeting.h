// Carries a handshake's bytes over a stream. Thread rule: one thread at a time.
#pragma once

#include "net/handshake.h"
#include "net/stream.h"

namespace hvd {

// Sends and receives what can be now. Not ok: the stream has ended. What becomes of the handshake is in its state(),
// which counts once outgoing() is empty. Never reads a byte beyond the handshake.
Status carry(Handshake& handshake, Stream& stream);

}  // namespace hvd
