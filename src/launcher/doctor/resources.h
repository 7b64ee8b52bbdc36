// What this machine offers to a process of a job. Thread rule: any thread; reads files of the kernel.
#pragma once

#include <string>

#include "launcher/doctor/facts.h"

namespace hvd {

// `root` comes before /proc and /sys; tests have their own.
Resources read_resources(const std::string& root = "");

}  // namespace hvd
