#include "launcher/mpi/plugin.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gnu/libc-version.h>
#include <pwd.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/fd.h"
#include "base/host_name.h"
#include "launcher/processes/capture.h"
#include "launcher/processes/programs.h"
#include "launcher/processes/shell_words.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr Duration kQuestionPatience = std::chrono::seconds(20);
constexpr Duration kCompilerPatience = std::chrono::seconds(120);
constexpr unsigned kLockPatience = 150;  // seconds: longer than a compiler may take
constexpr size_t kLongestComplaint = 4000;

constexpr const char* kSource = "hvd_mpi_shim.c";
constexpr const char* kHeader = "hvd_mpi_shim.h";

std::string content_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// FNV-1a. The cache belongs to the user, so a collision is no help to an attacker.
uint64_t hash_of(std::initializer_list<std::string_view> texts) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::string_view text : texts)
    // includes the terminating zero, so that adjacent texts cannot run together
    for (size_t i = 0; i <= text.size(); ++i)
      hash = (hash ^ (i < text.size() ? static_cast<unsigned char>(text[i]) : 0xff)) * 0x100000001b3;
  return hash;
}

Result<fs::path> cache_folder(const Lookup& lookup) {
  if (const char* cache = lookup("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') return fs::path(cache);
  const char* home = lookup("HOME");
  if (home != nullptr && *home == '/') return fs::path(home) / ".cache";
  const passwd* user = ::getpwuid(::getuid());
  if (user != nullptr && user->pw_dir != nullptr && *user->pw_dir == '/') return fs::path(user->pw_dir) / ".cache";
  return Status(Code::unknown, "there is no home folder for what is compiled; set XDG_CACHE_HOME");
}

std::string machine() {
  utsname name{};
  ::uname(&name);
  return fmt::format("{} glibc {}", name.machine, ::gnu_get_libc_version());
}

std::string folder_name(const Plugin& plugin, const Mpirun* mpirun) {
  std::string words = mpirun ? describe(mpirun->version) : "MPI";
  fs::path source = plugin.source;
  std::error_code ignored;
  uint64_t id = hash_of({words, fs::canonical(plugin.mpicc, ignored).string(),
                         output_of({plugin.mpicc, "-show"}, kQuestionPatience), machine(), content_of(source),
                         content_of(source.parent_path() / kHeader)});
  for (char& c : words) c = c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return fmt::format("{}-{:016x}", words, id);
}

void do_nothing(int) {}

// Waits for other processes that compile the same plugin, but not forever: the lock only avoids duplicate work, because
// a library is renamed to its final name when it is complete.
UniqueFd take_turn(const fs::path& folder) {
  UniqueFd lock(::open((folder / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct sigaction wake {
  }, before{};
  wake.sa_handler = do_nothing;  // without SA_RESTART, so that flock is interrupted
  ::sigaction(SIGALRM, &wake, &before);
  ::alarm(kLockPatience);
  (void)::flock(lock.get(), LOCK_EX);
  ::alarm(0);
  ::sigaction(SIGALRM, &before, nullptr);
  return lock;
}

// A plain "mpicc" may belong to any MPI.
Status wrong_mpicc(const Plugin& plugin) {
  return {Code::invalid_argument,
          fmt::format("{} is not the mpicc of {}, which is the MPI of this mpirun: install {}, or name the folder of "
                      "that MPI in HOROVOD_MPI_HOME",
                      plugin.mpicc, *plugin.is_open ? "Open MPI" : "MPICH", packages_of(plugin.is_open))};
}

Status compile(const Plugin& plugin, const std::string& output) {
  std::vector<std::string> command{plugin.mpicc, "-O2", "-fPIC", "-shared", "-o", output, plugin.source};
  if (plugin.is_open) command.push_back(*plugin.is_open ? "-DHVD_MPI_OF_OPEN_MPI" : "-DHVD_MPI_OF_MPICH");
  auto said = capture(command, kCompilerPatience);
  if (!said.ok()) return said.status();
  if (said->ending.code() == 0) return {};
  std::string complaint = said->err + said->out;
  if (complaint.find("HVD_MPI_OTHER_KIND") != std::string::npos) return wrong_mpicc(plugin);
  return Status(Code::unknown, fmt::format("cannot build Horovod's MPI library: {} ({})\n{}", shell_line(command),
                                           describe(said->ending), complaint.substr(0, kLongestComplaint)));
}

}  // namespace

Result<Plugin> find_plugin(const std::string& program, const Mpirun* mpirun, const Lookup& lookup) {
  std::string library = find_library(program);
  if (library.empty())
    return Status(Code::unknown, "the package horovod was not found, which has the source of the MPI library");
  Plugin plugin{.source = fs::path(library).parent_path() / "mpi" / kSource};
  std::error_code ignored;
  if (!fs::exists(plugin.source, ignored))
    return Status(Code::unknown, fmt::format("this installation has no source of the MPI library ({})", plugin.source));
  auto mpicc = find_mpicc(mpirun, lookup);
  if (!mpicc.ok()) return mpicc.status();
  plugin.mpicc = *mpicc;
  plugin.is_open = mpirun ? std::optional(is_open_mpi_kind(mpirun->version.flavour)) : kind_of_surroundings(lookup);
  auto cache = cache_folder(lookup);
  if (!cache.ok()) return cache.status();
  plugin.path = *cache / "horovod/mpi" / folder_name(plugin, mpirun) / "libhorovod_mpi.so";
  return plugin;
}

bool is_built(const Plugin& plugin) { return ::access(plugin.path.c_str(), R_OK) == 0; }

Status build(const Plugin& plugin) {
  if (is_built(plugin)) return {};
  fs::path folder = fs::path(plugin.path).parent_path();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    return Status(Code::unknown, fmt::format("cannot create the folder {}: {}; XDG_CACHE_HOME can name another place",
                                             folder.string(), error.message()));
  UniqueFd turn = take_turn(folder);
  if (is_built(plugin)) return {};
  std::string output = fmt::format("{}.{}.{}", plugin.path, host_name(), ::getpid());  // home folders may be shared
  Status status = compile(plugin, output);
  if (status.ok() && ::rename(output.c_str(), plugin.path.c_str()) != 0)
    status = system_error("cannot write", plugin.path);
  if (!status.ok()) ::unlink(output.c_str());
  return status;
}

}  // namespace hvd::launcher
