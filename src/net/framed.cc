#include "net/framed.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cassert>

namespace hvd {
namespace {

constexpr size_t kFirstBody = 64 << 10;  // allocated before any byte of a message has arrived

Bytes frame_of(ByteView message) {
  Bytes frame;
  frame.reserve(4 + message.size());
  for (int shift = 0; shift < 32; shift += 8) frame.push_back(static_cast<std::byte>(message.size() >> shift));
  frame.insert(frame.end(), message.begin(), message.end());
  return frame;
}

}  // namespace

std::span<std::byte> FrameReader::space() {
  assert(status_.ok() && !is_whole_);
  if (in_header_ < header_.size()) return std::span(header_).subspan(in_header_);
  if (in_body_ == body_.size()) body_.resize(std::min(length_, std::max(kFirstBody, body_.size() * 2)));
  return std::span(body_).subspan(in_body_);
}

void FrameReader::filled(size_t count) {
  if (in_header_ < header_.size()) {
    in_header_ += count;
    if (in_header_ < header_.size()) return;
    length_ = 0;
    for (size_t i = 0; i < header_.size(); i++) length_ |= static_cast<size_t>(header_[i]) << (8 * i);
    if (length_ > largest_) {
      status_ =
          Status(Code::unknown, fmt::format("a message of {} bytes, more than the {} allowed", length_, largest_));
      return;
    }
  } else {
    in_body_ += count;
  }
  is_whole_ = in_body_ == length_;
}

std::optional<Bytes> FrameReader::take() {
  if (!is_whole_) return std::nullopt;
  is_whole_ = false;
  in_header_ = in_body_ = length_ = 0;
  return std::exchange(body_, {});
}

Status FramedStream::send(ByteView message) {
  if (message.size() > limits_.largest_sent) {
    return {Code::invalid_argument,
            fmt::format("a message of {} bytes is more than the {} allowed", message.size(), limits_.largest_sent)};
  }
  if (message.size() > limits_.queued - std::min(queued_, limits_.queued)) {
    return {Code::unknown, fmt::format("the peer does not read: {} bytes wait to be sent", queued_)};
  }
  outgoing_.push_back(frame_of(message));
  queued_ += outgoing_.back().size();
  return flush();
}

Status FramedStream::flush() {
  while (!outgoing_.empty()) {
    ByteView left = ByteView(outgoing_.front()).subspan(sent_);
    auto written = stream_->write(left);
    if (!written.ok()) return written.status();
    if (*written == 0) return {};
    sent_ += *written;
    queued_ -= *written;
    if (sent_ < outgoing_.front().size()) continue;
    outgoing_.pop_front();
    sent_ = 0;
  }
  return {};
}

Result<std::optional<Bytes>> FramedStream::receive() {
  for (;;) {
    if (auto message = reader_.take()) return message;
    if (!reader_.status().ok()) return reader_.status();
    auto count = stream_->read(reader_.space());
    if (!count.ok()) return count.status();
    if (*count == 0) return std::optional<Bytes>();
    reader_.filled(*count);
  }
}

}  // namespace hvd
