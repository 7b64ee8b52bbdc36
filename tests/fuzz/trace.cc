// Feeds the reader of timelines with anything, cut anywhere, and makes a report of it in all forms.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "report/analysis.h"
#include "report/rank_reader.h"
#include "report/render.h"
#include "report/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd::report;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  Names names, kinds;
  size_t room = 1000;
  std::vector<RankTrace> ranks;
  std::vector<std::string> problems;
  for (int i = 0; i < 3; i++) {  // the same for three ranks, from different places on
    RankReader reader(names, kinds, room);
    reader.feed(text.substr(0, size / 2));
    reader.feed(text.substr(size / 2));
    for (std::string& problem : reader.finish()) problems.push_back(std::move(problem));
    ranks.push_back(reader.take());
    if (ranks.back().rank >= 0 && i > 0) ranks.back().rank = i;
  }
  if (ranks[0].operations.size() + ranks[1].operations.size() > 1000) std::abort();
  Trace trace = put_together(std::move(ranks), names.take(), kinds.take(), std::move(problems));
  Findings found = analyse(std::move(trace));
  if (render_html(found).find("<script") != std::string::npos) std::abort();
  if (render_text(found).find('\x1b') != std::string::npos || render_json(found).empty()) std::abort();
  return 0;
}
