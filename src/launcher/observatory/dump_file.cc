#include "launcher/observatory/dump_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

namespace hvd::launcher {
namespace {

constexpr size_t kDumpsKept = 20;
constexpr int kMostOfOneSecond = 100;

Status cannot_write(const std::string& path) {
  return {Code::unknown,
          fmt::format("cannot write {}: {}; --dump-dir names another folder", path, std::strerror(errno))};
}

void delete_oldest(const std::string& folder) {
  std::vector<std::filesystem::path> dumps;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with("dump-")) dumps.push_back(entry.path());
  std::sort(dumps.begin(), dumps.end());
  for (size_t i = 0; i + kDumpsKept <= dumps.size(); i++) std::filesystem::remove(dumps[i], ignored);
}

Result<std::string> private_folder() {
  const char* base = std::getenv("TMPDIR");
  std::string folder = fmt::format("{}/horovod-{}", base != nullptr && *base == '/' ? base : "/tmp", ::geteuid());
  ::mkdir(folder.c_str(), 0700);
  struct stat status {};
  bool is_private = ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
                    (status.st_mode & 077) == 0;
  if (!is_private)
    return Status(Code::unknown, fmt::format("{} is no folder of this user alone; --dump-dir names another", folder));
  delete_oldest(folder);
  return folder;
}

std::string stamp() {
  time_t now = ::time(nullptr);
  tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts)};
}

}  // namespace

Result<DumpFile> new_dump_file(const std::string& folder) {
  DumpFile file{.path = folder, .descriptor = UniqueFd()};
  if (folder.empty()) {
    auto found = private_folder();
    if (!found.ok()) return found.status();
    file.path = *found;
  }
  std::error_code ignored;
  std::filesystem::create_directories(file.path, ignored);
  std::string begin = fmt::format("{}/dump-{}-{}", file.path, stamp(), ::getpid());
  for (int i = 0; i < kMostOfOneSecond; i++) {
    file.path = i == 0 ? begin + ".json" : fmt::format("{}-{}.json", begin, i);
    file.descriptor = UniqueFd(::open(file.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.descriptor) return file;
    if (errno != EEXIST) break;
  }
  return cannot_write(file.path);
}

Status write_all(const DumpFile& file, std::string_view content) {
  while (!content.empty()) {
    ssize_t count = ::write(file.descriptor.get(), content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return cannot_write(file.path);
    content.remove_prefix(static_cast<size_t>(count));
  }
  return {};
}

}  // namespace hvd::launcher
