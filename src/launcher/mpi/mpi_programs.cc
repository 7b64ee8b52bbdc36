#include "launcher/mpi/mpi_programs.h"

#include <fmt/core.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "launcher/processes/capture.h"
#include "launcher/processes/programs.h"

namespace hvd::launcher {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);  // for a program on a slow network disk

constexpr const char* kPrograms[] = {"mpirun", "mpiexec", "mpirun.openmpi", "mpirun.mpich"};

std::string text_of(const Lookup& lookup, const char* name) {
  const char* text = lookup(name);
  return text == nullptr ? "" : text;
}

std::optional<MpiVersion> version_of(const std::string& mpirun) {
  return read_mpi_version(output_of({mpirun, "--version"}, kPatience));
}

Status no_mpirun(const std::string& what) {
  return {
      Code::invalid_argument,
      fmt::format("{}: install Open MPI (Debian: openmpi-bin libopenmpi-dev, conda: openmpi) or MPICH (Debian: mpich "
                  "libmpich-dev, conda: mpich), or name its folder in HOROVOD_MPI_HOME",
                  what)};
}

Result<Mpirun> mpirun_at(const std::string& path, const std::string& name) {
  auto version = version_of(path);
  if (version) return Mpirun{path, name, std::move(*version)};
  return Status(Code::invalid_argument,
                fmt::format("{} --version does not say that it is Open MPI, Spectrum MPI, MPICH "
                            "or Intel MPI; name another one in HOROVOD_MPIRUN",
                            path));
}

// On Debian "mpicc.openmpi" is next to "mpicc.mpich", and "mpicc" may be either.
std::vector<std::string> compiler_names(std::optional<bool> is_open) {
  if (!is_open) return {"mpicc"};
  return {*is_open ? "mpicc.openmpi" : "mpicc.mpich", "mpicc"};
}

Status no_mpicc(std::optional<bool> is_open, const std::string& whose) {
  return {Code::invalid_argument,
          fmt::format(
              "there is no mpicc{}, which builds Horovod's MPI library: install {}, or name the folder of an MPI in "
              "HOROVOD_MPI_HOME",
              whose, packages_of(is_open))};
}

}  // namespace

std::string packages_of(std::optional<bool> is_open) {
  constexpr const char* kOpen = "libopenmpi-dev (Debian) or openmpi (conda)";
  constexpr const char* kMpich = "libmpich-dev (Debian) or mpich (conda)";
  return is_open ? *is_open ? kOpen : kMpich : fmt::format("{}, or {}", kOpen, kMpich);
}

std::optional<bool> kind_of_surroundings(const Lookup& lookup) {
  if (lookup("OMPI_COMM_WORLD_RANK") != nullptr) return true;
  if (lookup("PMI_RANK") != nullptr && lookup("MPI_LOCALRANKID") != nullptr) return false;
  return std::nullopt;
}

std::optional<bool> likely_kind(const Lookup& lookup) {
  if (auto kind = kind_of_surroundings(lookup)) return kind;
  if (lookup("PMI_RANK") != nullptr) return false;
  if (lookup("PMIX_RANK") != nullptr) return true;
  return std::nullopt;
}

Result<Mpirun> find_mpirun(const Lookup& lookup) {
  if (std::string chosen = text_of(lookup, "HOROVOD_MPIRUN"); !chosen.empty()) {
    auto path = find_program(chosen);
    return path.empty() ? no_mpirun(fmt::format("there is no {} (HOROVOD_MPIRUN)", chosen)) : mpirun_at(path, chosen);
  }
  if (std::string home = text_of(lookup, "HOROVOD_MPI_HOME"); !home.empty()) {
    for (const char* name : {"mpirun", "mpiexec"})
      if (std::string path = std::filesystem::path(home) / "bin" / name; is_program(path)) return mpirun_at(path, path);
    return no_mpirun(fmt::format("there is no mpirun in {}/bin (HOROVOD_MPI_HOME)", home));
  }
  std::optional<bool> wanted = kind_of_surroundings(lookup), likely = likely_kind(lookup);
  std::string unknown;
  std::optional<Mpirun> second_best;
  for (const char* name : kPrograms) {
    auto path = find_program(name);
    auto version = path.empty() ? std::nullopt : version_of(path);
    if (!path.empty() && !version && unknown.empty()) unknown = path;
    if (!version) continue;
    bool is_open = is_open_mpi_kind(version->flavour);
    if (!likely || *likely == is_open) return Mpirun{path, name, *version};
    if (!wanted && !second_best) second_best = Mpirun{path, name, *version};
  }
  if (second_best) return *second_best;
  if (!unknown.empty()) return mpirun_at(unknown, unknown).status();
  return no_mpirun("there is no mpirun in PATH");
}

Result<std::string> find_mpicc(const Mpirun* mpirun, const Lookup& lookup) {
  auto is_open = mpirun ? std::optional(is_open_mpi_kind(mpirun->version.flavour)) : likely_kind(lookup);
  auto names = compiler_names(is_open);
  if (std::string home = text_of(lookup, "HOROVOD_MPI_HOME"); !home.empty()) {
    std::string path = std::filesystem::path(home) / "bin/mpicc";
    if (is_program(path)) return path;
    return no_mpicc(is_open, fmt::format(" in {}/bin (HOROVOD_MPI_HOME)", home));
  }
  if (mpirun) {
    std::error_code ignored;
    std::filesystem::path path = mpirun->path;
    for (const auto& folder : {path.parent_path(), std::filesystem::canonical(path, ignored).parent_path()})
      for (const std::string& name : names)
        if (is_program(folder / name)) return (folder / name).string();
    // Other names in PATH may belong to another MPI, unless the name says which one.
    auto found = find_program(names[0]);
    return found.empty() ? Result<std::string>(no_mpicc(is_open, " of " + describe(mpirun->version))) : found.string();
  }
  for (const std::string& name : names)
    if (auto path = find_program(name); !path.empty()) return path.string();
  return no_mpicc(is_open, " in PATH");
}

}  // namespace hvd::launcher
