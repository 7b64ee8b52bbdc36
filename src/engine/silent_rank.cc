#include "engine/silent_rank.h"

#include <charconv>
#include <string_view>

namespace hvd {

std::optional<int32_t> silent_rank(const Status& failure) {
  constexpr std::string_view kRank = "rank ";
  std::string_view text = failure.message();
  size_t silence = text.find("silent for ");  // Transport::find_silent, ControlLink::progress
  size_t name = silence == std::string_view::npos ? silence : text.rfind(kRank, silence);
  if (failure.code() != Code::peer_lost || name == std::string_view::npos) return std::nullopt;
  int32_t rank = -1;
  std::from_chars(text.data() + name + kRank.size(), text.data() + silence, rank);
  return rank < 0 ? std::nullopt : std::optional(rank);
}

}  // namespace hvd
