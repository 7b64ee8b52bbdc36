#include "report/event_splitter.h"

namespace hvd::report {

void EventSplitter::feed(std::string_view bytes, const std::function<void(std::string_view)>& take) {
  size_t begin = 0;  // of the part of the object that is in `bytes`
  for (size_t i = 0; i < bytes.size(); i++) {
    char letter = bytes[i];
    if (depth_ == 0) {
      if (letter == '{') {
        depth_ = 1;
        begin = i;
        object_.clear();
      }
      if (letter > ' ') is_closed_ = letter == ']';
      continue;
    }
    if (in_text_) {
      if (escaped_) {
        escaped_ = false;
      } else if (letter == '\\') {
        escaped_ = true;
      } else if (letter == '"') {
        in_text_ = false;
      }
      continue;
    }
    if (letter == '"') in_text_ = true;
    if (letter == '{') depth_++;
    if (letter != '}' || --depth_ > 0) continue;
    std::string_view rest = bytes.substr(begin, i + 1 - begin);
    if (object_.size() + rest.size() > kLongest) {
      too_long_++;
    } else if (object_.empty()) {
      take(rest);
    } else {
      take(object_.append(rest));
    }
    object_.clear();
    begin = i + 1;
  }
  if (depth_ > 0 && object_.size() <= kLongest) object_.append(bytes.substr(begin, kLongest + 1));
}

}  // namespace hvd::report
