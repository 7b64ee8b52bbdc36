#include "launcher/output/rank_output.h"

#include <filesystem>
#include <utility>

namespace hvd::launcher {

Result<RankOutput> RankOutput::open(const Options& options, std::string_view label, const std::string& own_folder,
                                    WorkerStream stream, Screen& screen) {
  std::string_view name = stream == WorkerStream::out ? "stdout" : "stderr";
  LinePrefixer prefixer(label, name, options.prefix_timestamp);
  if (options.output_filename.empty()) return RankOutput(stream, std::move(prefixer), std::nullopt);
  auto file = screen.files().open(std::filesystem::path(options.output_filename) / own_folder / name);
  if (!file.ok()) return file.status();
  return RankOutput(stream, std::move(prefixer), *file);
}

void RankOutput::take(std::string_view bytes, Screen& screen) {
  if (has_ended_) return;
  std::string lines;
  prefixer_.feed(bytes, lines);
  tail_.feed(bytes);
  forward(lines, screen);
}

void RankOutput::end(Screen& screen) {
  if (std::exchange(has_ended_, true)) return;
  std::string lines;
  prefixer_.finish(lines);
  forward(lines, screen);
  if (file_) screen.files().close(*file_);  // an object kept for its last lines needs no descriptor
}

void RankOutput::forward(std::string_view lines, Screen& screen) {
  screen.show(stream_, lines);
  if (file_) screen.files().append(*file_, lines);
}

}  // namespace hvd::launcher
