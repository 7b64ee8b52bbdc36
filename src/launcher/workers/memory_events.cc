#include "launcher/workers/memory_events.h"

#include <fstream>
#include <string>
#include <utility>

namespace hvd {
namespace {

// The line "oom_kill N" of a file, or -1.
int64_t read_kills(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  int64_t value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return -1;
}

// Version 2 of control groups has one tree, version 1 one per controller; a machine may have both.
int64_t count_kills() {
  std::ifstream groups("/proc/self/cgroup");
  int64_t kills = -1;
  for (std::string line; std::getline(groups, line);) {  // "number:controllers:/path"
    size_t controllers = line.find(':') + 1, path = line.find(':', controllers) + 1;
    if (controllers == 0 || path == 0) continue;
    std::string names = line.substr(controllers, path - controllers - 1), group = line.substr(path);
    int64_t found = -1;
    if (names.empty()) found = read_kills("/sys/fs/cgroup" + group + "/memory.events");
    if (("," + names + ",").find(",memory,") != std::string::npos) {
      found = read_kills("/sys/fs/cgroup/memory" + group + "/memory.oom_control");
      if (found < 0) found = read_kills("/sys/fs/cgroup/memory/memory.oom_control");  // in a container
    }
    if (found >= 0) kills = found;
  }
  return kills >= 0 ? kills : read_kills("/sys/fs/cgroup/memory.events");
}

}  // namespace

MemoryEvents::MemoryEvents() : kills_(count_kills()) {}

bool MemoryEvents::has_killed() {
  int64_t now = count_kills();
  return now > std::exchange(kills_, now) && now > 0;
}

}  // namespace hvd
