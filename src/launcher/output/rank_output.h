// The output of one rank: forwards it to the screen and optionally to files. Thread rule: one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "launcher/command_line/options.h"
#include "launcher/output/output.h"
#include "launcher/output/screen.h"

namespace hvd::launcher {

class RankOutput {
 public:
  // `folder`: for its files, below the one that the user has named.
  static Result<RankOutput> open(const Options& options, std::string_view label, const std::string& folder,
                                 WorkerStream stream, Screen& screen);

  void set_label(std::string_view label) { prefixer_.set_label(label); }  // from the next line on

  void take(std::string_view bytes, Screen& screen);
  void end(Screen& screen);  // outputs the partial line; call once
  bool has_ended() const { return has_ended_; }
  const Tail& tail() const { return tail_; }

 private:
  RankOutput(WorkerStream stream, LinePrefixer prefixer, std::optional<int> file)
      : stream_(stream), prefixer_(std::move(prefixer)), file_(file) {}
  void forward(std::string_view lines, Screen& screen);

  WorkerStream stream_;
  LinePrefixer prefixer_;
  std::optional<int> file_;  // of the screen's
  Tail tail_;
  bool has_ended_ = false;
};

}  // namespace hvd::launcher
