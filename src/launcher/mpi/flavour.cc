#include "launcher/mpi/flavour.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/number.h"

namespace hvd::launcher {
namespace {

// "4.1.4" in "mpirun (Open MPI) 4.1.4"; "2021.13" in "Version 2021.13 Build 20240515".
std::string number_after(std::string_view text, std::string_view words) {
  size_t at = text.find(words);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + words.size());
  text = text.substr(0, text.find('\n'));
  auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  auto begin = std::find_if(text.begin(), text.end(), is_digit);
  auto end =
      std::find_if(begin, text.end(), [&](char c) { return !is_digit(static_cast<unsigned char>(c)) && c != '.'; });
  std::string number(begin, end);
  while (number.ends_with('.')) number.pop_back();
  return number;
}

struct Sign {
  std::string_view words;  // that only this mpirun prints
  MpiFlavour flavour;
  std::string_view before_number;
};

// Spectrum MPI also says that it is Open MPI, so it comes first; Intel's is made from Hydra.
constexpr Sign kSigns[] = {
    {"IBM Spectrum MPI", MpiFlavour::spectrum, "IBM Spectrum MPI"},
    {"Open MPI", MpiFlavour::open_mpi, "Open MPI"},
    {"OpenRTE", MpiFlavour::open_mpi, "OpenRTE"},
    {"Intel(R) MPI", MpiFlavour::intel, "Version"},
    {"MPICH", MpiFlavour::mpich, "Version:"},
    {"HYDRA", MpiFlavour::mpich, "Version:"},
};

}  // namespace

std::optional<MpiVersion> read_mpi_version(std::string_view printed) {
  for (const Sign& sign : kSigns) {
    if (printed.find(sign.words) == std::string_view::npos) continue;
    MpiVersion version{.flavour = sign.flavour, .number = number_after(printed, sign.before_number)};
    version.major = read_number<int>(version.number.substr(0, version.number.find('.'))).value_or(0);
    return version;
  }
  return std::nullopt;
}

std::string_view name_of(MpiFlavour flavour) {
  switch (flavour) {
    case MpiFlavour::open_mpi: return "Open MPI";
    case MpiFlavour::spectrum: return "IBM Spectrum MPI";
    case MpiFlavour::mpich: return "MPICH";
    case MpiFlavour::intel: return "Intel MPI";
  }
  return "";
}

std::string describe(const MpiVersion& version) {
  return fmt::format("{}{}{}", name_of(version.flavour), version.number.empty() ? "" : " ", version.number);
}

bool is_open_mpi_kind(MpiFlavour flavour) { return flavour == MpiFlavour::open_mpi || flavour == MpiFlavour::spectrum; }

}  // namespace hvd::launcher
