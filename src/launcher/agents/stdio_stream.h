// This process's stdin and stdout as one stream. Thread rule: one thread.
#pragma once

#include <memory>

#include "net/stream.h"

namespace hvd {

std::unique_ptr<Stream> make_stdio_stream();  // makes both non-blocking

}  // namespace hvd
