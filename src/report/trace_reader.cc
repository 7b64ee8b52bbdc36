#include "report/trace_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <utility>

#include "base/fd.h"
#include "base/number.h"
#include "report/rank_reader.h"

namespace hvd::report {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = 1 << 20;
constexpr size_t kMostFiles = 100000;

// The name without ".rank12".
std::string common_name(const fs::path& path) {
  std::string name = path.filename();
  size_t at = name.rfind(".rank");
  if (at == std::string::npos) return name;
  size_t end = std::min(name.find_first_not_of("0123456789", at + 5), name.size());
  if (end == at + 5 || (end < name.size() && name[end] != '.')) return name;
  return name.erase(at, end - at);
}

Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code error;
  bool is_folder = fs::is_directory(path, error);
  fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  if (!is_folder && !fs::exists(path, error)) return system_error("cannot read the timeline", path, ENOENT);
  std::map<std::string, std::vector<std::string>> timelines;  // by name
  for (fs::directory_iterator at(folder.empty() ? "." : folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (!at->is_regular_file(ignored) || (is_folder && at->path().extension() != ".json")) continue;
    timelines[common_name(at->path())].push_back(at->path());
    if (timelines.size() > kMostFiles) break;
  }
  if (error) return system_error("cannot read", folder.string(), error.value());
  if (!is_folder) {
    auto files = timelines[common_name(path)];
    return files.empty() ? std::vector<std::string>{path} : files;
  }
  if (timelines.empty()) return invalid_argument(fmt::format("there is no timeline (*.json) in {}", path));
  if (timelines.size() > 1) {
    std::string names;
    for (const auto& [name, files] : timelines) names += (names.empty() ? "" : ", ") + name;
    if (names.size() > 300) names = names.substr(0, 300) + "...";
    return invalid_argument(fmt::format("there are several timelines in {} ({}): name the file of one", path, names));
  }
  return timelines.begin()->second;
}

Status read_file(const std::string& path, RankReader& reader) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return system_error("cannot read", path);
  (void)::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  std::string piece(kPiece, '\0');
  while (true) {
    ssize_t count = ::read(fd.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read", path);
    if (count == 0) return {};
    reader.feed({piece.data(), static_cast<size_t>(count)});
  }
}

std::string ranks_list(const std::vector<int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min<size_t>(ranks.size(), 10); i++) text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > 10) text += fmt::format(" and {} more", ranks.size() - 10);
  return text;
}

}  // namespace

Trace put_together(std::vector<RankTrace> ranks, std::vector<std::string> names, std::vector<std::string> kinds,
                   std::vector<std::string> problems) {
  Trace trace{.ranks = {}, .names = std::move(names), .kinds = std::move(kinds), .problems = std::move(problems)};
  std::stable_sort(ranks.begin(), ranks.end(), [](auto& one, auto& other) { return one.rank < other.rank; });
  int32_t size = 0;
  for (RankTrace& rank : ranks) {
    if (rank.rank < 0) {
      trace.problems.push_back(fmt::format("{} does not say of which rank it is, and is left out", rank.file));
    } else if (!trace.ranks.empty() && trace.ranks.back().rank == rank.rank) {
      trace.problems.push_back(
          fmt::format("{} is of rank {}, like {}, and is left out", rank.file, rank.rank, trace.ranks.back().file));
    } else if (!trace.ranks.empty() && rank.size != trace.ranks.front().size) {
      trace.problems.push_back(fmt::format("{} is of a world of {} ranks, {} of one of {}: it is left out", rank.file,
                                           rank.size, trace.ranks.front().file, trace.ranks.front().size));
    } else {
      size = std::max({size, rank.size, rank.rank + 1});
      trace.ranks.push_back(std::move(rank));
    }
  }
  std::vector<int32_t> missing;
  size_t at = 0;
  for (int32_t rank = 0; rank < size && missing.size() < 1 << 20; rank++) {
    if (at < trace.ranks.size() && trace.ranks[at].rank == rank) {
      at++;
    } else {
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    trace.problems.push_back(
        fmt::format("the file of {} is missing: copy the files of all hosts into one folder; what this report says of "
                    "waiting leaves out those ranks",
                    ranks_list(missing)));
  }
  bool has_plans = std::any_of(trace.ranks.begin(), trace.ranks.end(), [](const RankTrace& rank) {
    return !rank.operations.empty() && rank.operations.front().plan >= 0;
  });
  if (!has_plans && !trace.ranks.empty() && !trace.ranks.front().operations.empty()) {
    trace.problems.emplace_back(
        "this is a timeline of rank 0 alone: record with HOROVOD_TIMELINE_ALL_RANKS=1 to see which rank is late and "
        "how much of the communication is hidden");
  }
  return trace;
}

Result<Trace> read_trace(const std::string& path, size_t room) {
  auto files = files_of(path);
  if (!files.ok()) return files.status();
  Names names, kinds;
  std::vector<RankTrace> ranks;
  std::vector<std::string> problems;
  for (const std::string& file : *files) {
    RankReader reader(names, kinds, room);
    if (Status status = read_file(file, reader); !status.ok()) {
      problems.emplace_back(status.message());
      continue;
    }
    for (const std::string& problem : reader.finish()) problems.push_back(fmt::format("{}: {}", file, problem));
    ranks.push_back(reader.take());
    ranks.back().file = file;
  }
  Trace trace = put_together(std::move(ranks), names.take(), kinds.take(), std::move(problems));
  if (!trace.ranks.empty()) return trace;
  std::string why = trace.problems.empty() ? "" : ": " + trace.problems.front();
  return invalid_argument(fmt::format("{} holds no timeline{}", path, why));
}

}  // namespace hvd::report
