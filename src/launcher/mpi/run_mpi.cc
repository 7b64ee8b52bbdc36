#include "launcher/mpi/run_mpi.h"

#include <fmt/core.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/fd.h"
#include "launcher/mpi/meet_under_mpi.h"
#include "launcher/mpi/mpi_command.h"
#include "launcher/mpi/mpi_job.h"
#include "launcher/mpi/mpi_reports.h"
#include "launcher/mpi/plugin.h"
#include "launcher/processes/guard.h"
#include "launcher/processes/shell_words.h"
#include "launcher/workers/binding.h"
#include "launcher/workers/environment.h"
#include "launcher/workers/failure.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kUsageError = 2;

const char* look_up(const char* name) { return ::getenv(name); }

int failed(const Status& status) {
  fmt::print(stderr, "horovodrun: {}\n", status.message());
  return status.code() == Code::invalid_argument ? kUsageError : 1;
}

// The file that tells jsrun where ranks go; it exists as long as this object.
class RankFile {
 public:
  static Result<RankFile> create(const std::string& text) {
    std::string path = std::filesystem::temp_directory_path() / "horovodrun.XXXXXX";
    UniqueFd fd(::mkstemp(path.data()));
    if (!fd) return system_error("cannot create the rank file", path);
    RankFile file(path);
    if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
      return system_error("cannot write the rank file", path);
    return file;
  }
  RankFile(RankFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  RankFile& operator=(RankFile&&) = delete;
  ~RankFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  explicit RankFile(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

struct Prepared {
  MpiJob job;
  std::vector<std::string> notes;
};

Result<Prepared> prepare(const Options& options, const std::vector<Slot>& slots, const LauncherChoice& choice,
                         const std::string& program, bool dry_run) {
  auto job = make_mpi_job(options, slots, environ);
  if (!job.ok()) return job.status();
  const Mpirun* mpirun = choice.mpirun ? &*choice.mpirun : nullptr;
  auto meeting = meet_under_mpi(options, *job, mpirun, program, look_up, dry_run);
  if (!meeting.ok()) return meeting.status();
  for (auto& [name, value] : meeting->variables) set_variable(job->variables, name, std::move(value));
  return Prepared{std::move(*job), std::move(meeting->notes)};
}

// MPICH does not create the folders of its output files.
Status make_folders(const MpiVersion& version, const MpiJob& job) {
  if (job.output_folder.empty() || is_open_mpi_kind(version.flavour)) return {};
  for (int rank = 0; rank < job.num_proc; ++rank) {
    std::error_code error;
    std::filesystem::create_directories(fmt::format("{}/rank.{}", job.output_folder, rank), error);
    if (error)
      return Status(Code::unknown,
                    fmt::format("cannot create the folder {}/rank.{}: {}", job.output_folder, rank, error.message()));
  }
  return {};
}

void say(const Options& options, const MpiStart& start, const std::vector<std::string>& notes) {
  for (const std::string& warning : start.warnings) fmt::print(stderr, "horovodrun: warning: {}\n", warning);
  for (const std::string& note : notes) fmt::print(stderr, "horovodrun: {}\n", note);
  if (options.verbose) fmt::print(stderr, "horovodrun: {}\n", shell_line(start.command));
}

// The arguments of exec. Created before the fork: there may be threads by then.
class Image {
 public:
  Image(std::string path, const MpiStart& start) : path_(std::move(path)), words_(start.command) {
    std::vector<char*> inherited;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::string_view name(*entry, std::strcspn(*entry, "=")); name != "_" && !is_rank_variable(name))
        inherited.push_back(*entry);
    inherited.push_back(nullptr);
    environment_ = merged_environment({}, inherited.data(), {&start.variables});
    // MPICH's mpirun does not forward the last variable of its environment, so add one that no rank needs: shells set
    // it.
    environment_.push_back("_=" + path_);
    for (std::string& word : words_) argv_.push_back(word.data());
    for (std::string& entry : environment_) envp_.push_back(entry.data());
    argv_.push_back(nullptr);
    envp_.push_back(nullptr);
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;

  // Returns only if exec fails.
  int execute() const {
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execve(path_.c_str(), argv_.data(), envp_.data());
    return failed(system_error("cannot run", path_));
  }

 private:
  std::string path_;
  std::vector<std::string> words_, environment_;
  std::vector<char*> argv_, envp_;
};

// Prints the ranks' reports after the output of mpirun.
void show_summary(const std::vector<EndReport>& reports) {
  if (reports.empty()) return;
  tell_caller(cause_in(reports));
  fmt::print(stderr, "{}", summary_of(reports));
}

using MakeStart = std::function<MpiStart(const MpiJob& job)>;

int run_and_listen(const Options& options, const std::string& path, MpiJob job, const MakeStart& make_start) {
  auto reports =
      MpiReports::create(options, job);  // optional: without it the ranks cannot report their ends, but still run
  if (reports.ok()) set_variable(job.variables, kReportStoreVariable, reports->variable());
  MpiStart start = make_start(job);
  Image image(path, start);
  Ending ending = run_below([&] { return image.execute(); });
  if (ending.code() != 0 && reports.ok()) show_summary(reports->read());
  if (ending.signalled) fmt::print(stderr, "horovodrun: {} was {}\n", start.command[0], describe(ending));
  return ending.code();
}

// Guarded, because an mpirun that is killed with -9 leaves ranks behind.
int run(const Options& options, const std::string& path, Prepared prepared, const MakeStart& make_start) {
  MpiStart start = make_start(prepared.job);
  say(options, start, prepared.notes);
  return run_guarded(start.command[0].c_str(),
                     [&] { return run_and_listen(options, path, std::move(prepared.job), make_start); });
}

}  // namespace

int run_mpi_job(const Options& options, const std::vector<Slot>& slots, const LauncherChoice& choice,
                const std::string& program) {
  auto prepared = prepare(options, slots, choice, program, false);
  if (!prepared.ok()) return failed(prepared.status());
  if (choice.jsrun.empty()) {
    const Mpirun& mpirun = *choice.mpirun;
    if (Status status = make_folders(mpirun.version, prepared->job); !status.ok()) return failed(status);
    return run(options, mpirun.path, std::move(*prepared),
               [&](const MpiJob& job) { return mpirun_command(mpirun.version, mpirun.name, job); });
  }
  auto file = RankFile::create(rank_file_text(prepared->job, core_count()));
  if (!file.ok()) return failed(file.status());
  return run(options, choice.jsrun, std::move(*prepared),
             [&](const MpiJob& job) { return jsrun_command("jsrun", job, file->path()); });
}

Result<std::string> describe_mpi_job(const Options& options, const std::vector<Slot>& slots,
                                     const LauncherChoice& choice, const std::string& program, const std::string& job) {
  auto prepared = prepare(options, slots, choice, program, true);
  if (!prepared.ok()) return prepared.status();
  bool is_jsrun = !choice.jsrun.empty();
  MpiStart start = is_jsrun ? jsrun_command("jsrun", prepared->job, "RANK_FILE")
                            : mpirun_command(choice.mpirun->version, choice.mpirun->name, prepared->job);
  Json launcher{{"program", is_jsrun ? choice.jsrun : choice.mpirun->path},
                {"mpi", choice.mpirun ? Json(describe(choice.mpirun->version)) : Json(nullptr)},
                {"command", start.command},
                {"variables", Json::object()}};
  for (const auto& [name, value] : start.variables)
    launcher["variables"][name] = name.starts_with("_HOROVOD_") ? "(secret)" : value;
  if (is_jsrun) launcher["rank_file"] = rank_file_text(prepared->job, core_count());
  Json all = Json::parse(job);
  all["launcher"] = std::move(launcher);
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int build_mpi(const std::string& program) {
  auto mpirun = find_mpirun(look_up);
  auto plugin = find_plugin(program, mpirun.ok() ? &*mpirun : nullptr, look_up);
  if (!plugin.ok()) return failed(plugin.status());
  if (Status status = build(*plugin); !status.ok()) return failed(status);
  fmt::print("{}\n", plugin->path);
  return 0;
}

}  // namespace hvd::launcher
