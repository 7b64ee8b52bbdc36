// Which horovod this host has: the Python beside horovodrun or on PATH is asked, no framework is imported.
// Thread rule: starts a process and waits for it.
#pragma once

#include <string>

#include "base/clock.h"
#include "launcher/doctor/facts.h"

namespace hvd {

// Without the library's version: loading it is library.h. `program` is how horovodrun was called.
Installation find_installation(const std::string& program, Duration patience);

}  // namespace hvd
