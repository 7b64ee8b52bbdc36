#include "launcher/observatory/top.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "launcher/observatory/dump_file.h"
#include "launcher/observatory/explain.h"
#include "launcher/observe/http_server.h"

namespace hvd::launcher {
namespace {

using nlohmann::json;

constexpr int kNoJob = 2;
constexpr int kAnswerMilliseconds = 15000;
constexpr int kPictureMilliseconds = 1000;
constexpr size_t kMostRows = 64;

// Launchers of this user, from the names of their sockets.
std::vector<pid_t> find_jobs() {
  std::ifstream sockets("/proc/net/unix");
  std::string wanted = fmt::format("@horovodrun.{}.", ::geteuid());
  std::vector<pid_t> jobs;
  for (std::string line; std::getline(sockets, line);) {
    size_t at = line.find(wanted);
    if (at == std::string::npos) continue;
    pid_t pid = 0;
    std::from_chars(line.data() + at + wanted.size(), line.data() + line.size(), pid);
    if (pid > 0) jobs.push_back(pid);
  }
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

Result<pid_t> choose_job(const std::string& job) {
  if (!job.empty()) {
    pid_t pid = 0;
    auto [end, error] = std::from_chars(job.data(), job.data() + job.size(), pid);
    if (error != std::errc() || end != job.data() + job.size() || pid <= 0)
      return Status(Code::invalid_argument, fmt::format("{} is no process id of a horovodrun", job));
    return pid;
  }
  std::vector<pid_t> jobs = find_jobs();
  if (jobs.size() == 1) return jobs[0];
  if (jobs.empty())
    return Status(Code::invalid_argument,
                  "no job of this user runs on this machine (of several hosts, the one where "
                  "horovodrun was started shows the job)");
  std::string list;
  for (pid_t pid : jobs) list += fmt::format(" {}", pid);
  return Status(Code::invalid_argument, fmt::format("several jobs run here; name one of:{}", list));
}

Result<std::string> ask(pid_t job, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = control_name(::geteuid(), job);
  std::memcpy(address.sun_path + 1, name.data(), std::min(name.size(), sizeof address.sun_path - 1));
  auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    return Status(Code::peer_lost, fmt::format("no job with process id {} of this user runs here", job));
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != ::geteuid())
    return Status(Code::peer_lost, fmt::format("what answers for {} belongs to another user", job));
  std::string request = fmt::format("GET {} HTTP/1.1\r\n\r\n", path), answer;
  (void)!::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
  std::array<char, 65536> buffer;
  for (;;) {
    pollfd wanted{.fd = socket.get(), .events = POLLIN, .revents = 0};
    if (::poll(&wanted, 1, kAnswerMilliseconds) <= 0) return Status(Code::timed_out, "the launcher does not answer");
    ssize_t count = ::read(socket.get(), buffer.data(), buffer.size());
    if (count <= 0) break;
    answer.append(buffer.data(), static_cast<size_t>(count));
  }
  size_t body = answer.find("\r\n\r\n");
  if (body == std::string::npos) return Status(Code::peer_lost, "the job has ended");
  return answer.substr(body + 4);
}

int failed(const Status& status) {
  fmt::print(stderr, "horovodrun: {}\n", status.message());
  return status.code() == Code::invalid_argument ? kNoJob : 1;
}

double number_in(const json& object, const char* name) {
  auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string duration_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.1f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.0f} us", seconds * 1e6);
}

size_t terminal_width() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 120;
}

std::string list_of(const json& ranks) {
  std::string text;
  for (const json& rank : ranks) text += fmt::format("{}{}", text.empty() ? "" : ",", rank.dump());
  return text;
}

}  // namespace

std::string top_text(const json& status, size_t width) {
  if (!status.is_object() || !status.contains("workers")) return "the launcher's answer makes no sense\n";
  std::vector<std::string> lines;
  lines.push_back(fmt::format("job {}: {} ranks, up {:.0f} s", static_cast<int64_t>(number_in(status, "pid")),
                              static_cast<int64_t>(number_in(status, "ranks")),
                              number_in(status, "time") - number_in(status, "began")));
  lines.push_back(status.value("command", ""));
  lines.push_back("");
  lines.push_back(fmt::format("{:>5} {:<16} {:<12} {:>9} {:>8} {:>8} {:>6} {:>9} {:>6} {:>8}", "rank", "host", "state",
                              "ms/step", "ops/s", "MB/s", "waits", "late", "queue", "memory"));
  size_t rows = 0;
  for (const json& worker : status["workers"]) {
    if (rows++ == kMostRows) {
      lines.push_back(fmt::format("... and {} more", status["workers"].size() - kMostRows));
      break;
    }
    bool has_step = worker.contains("step_seconds") && worker["step_seconds"].is_number();
    std::string process = worker.value("process", "");
    lines.push_back(fmt::format(
        "{:>5} {:<16.16} {:<12.12} {:>9} {:>8.1f} {:>8.1f} {:>5.0f}% {:>9} {:>6.0f} {:>5.0f} MB",
        number_in(worker, "rank"), worker.value("host", ""), process == "stopped" ? process : worker.value("state", ""),
        has_step ? fmt::format("{:.1f}", number_in(worker, "step_seconds") * 1e3) : "-",
        number_in(worker, "operations_per_second"), number_in(worker, "bytes_per_second") / 1e6,
        number_in(worker, "waiting_share") * 100, duration_text(number_in(worker, "lateness_seconds")),
        number_in(worker, "in_flight"), number_in(worker, "resident_bytes") / 1e6));
  }
  if (status.contains("waiting") && !status["waiting"].empty()) {
    lines.push_back("");
    for (const json& one : status["waiting"])
      lines.push_back(fmt::format("{} {}: ranks {} since {}{}", one.value("kind", ""), one.value("name", ""),
                                  list_of(one["waiting"]),
                                  duration_text(number_in(status, "time") - number_in(one, "since")),
                                  one["missing"].empty() ? "" : ", missing: " + list_of(one["missing"])));
  }
  std::string text;
  for (const std::string& line : lines) text += line.substr(0, width) + "\n";
  return text;
}

// In a terminal until Ctrl-C or the end of the job; once where stdout is none.
int run_top(const std::string& job) {
  auto pid = choose_job(job);
  if (!pid.ok()) return failed(pid.status());
  bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  for (bool is_first = true;; is_first = false) {
    auto answer = ask(*pid, "/status.json");
    if (!answer.ok()) {
      if (is_first) return failed(answer.status());
      fmt::print("the job has ended\n");
      return 0;
    }
    json status = json::parse(*answer, nullptr, false);
    if (is_terminal) fmt::print("\x1b[H\x1b[2J");
    fmt::print("{}", top_text(status, is_terminal ? terminal_width() : std::string::npos));
    std::fflush(stdout);
    if (!is_terminal) return 0;
    ::poll(nullptr, 0, kPictureMilliseconds);
  }
}

int run_dump(const std::string& job, const std::string& folder) {
  auto pid = choose_job(job);
  if (!pid.ok()) return failed(pid.status());
  auto answer = ask(*pid, "/dump");
  if (!answer.ok()) return failed(answer.status());
  auto file = new_dump_file(folder == "none" ? "" : folder);  // this one was asked for
  if (!file.ok()) return failed(file.status());
  if (Status status = write_all(*file, *answer); !status.ok()) return failed(status);
  fmt::print("{}\n", file->path);
  return 0;
}

int run_explain(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return failed({Code::invalid_argument, fmt::format("cannot read {}: {}", file, std::strerror(errno))});
  std::ostringstream text;
  text << in.rdbuf();
  auto story = explain(text.str());
  if (!story.ok()) return failed({story.status().code(), fmt::format("{}: {}", file, story.status().message())});
  fmt::print("{}", *story);
  return 0;
}

}  // namespace hvd::launcher
