// Cuts a stream of bytes into the JSON objects of its outermost array, whatever is between them. An object that is too
// long or never ends is skipped and counted. Memory is bounded by the longest object.
// Thread rule: one caller at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace hvd::report {

class EventSplitter {
 public:
  static constexpr size_t kLongest = 64 << 10;  // the recorder's are below 4 KiB

  // Calls `take` for each object that ends within these bytes.
  void feed(std::string_view bytes, const std::function<void(std::string_view)>& take);

  bool is_inside() const { return depth_ > 0; }  // the stream ends within an object
  size_t too_long() const { return too_long_; }
  bool is_closed() const { return is_closed_; }  // the last byte that is no space was the array's bracket

 private:
  std::string object_;
  int depth_ = 0;
  bool in_text_ = false, escaped_ = false, is_closed_ = false;
  size_t too_long_ = 0;
};

}  // namespace hvd::report
