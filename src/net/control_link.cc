#include "net/control_link.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/round_up.h"

namespace hvd {
namespace {

constexpr size_t kHead = 5;
constexpr size_t kLargestFrame = 256 << 20;
constexpr size_t kReadAtOnce = 64 << 10;
constexpr Duration kRetry = std::chrono::milliseconds(1);  // while the socket buffer is full

}  // namespace

ControlLink::ControlLink(std::unique_ptr<Stream> stream, std::string peer, ControlLinkSettings settings, TimePoint now)
    : stream_(std::move(stream)), peer_(std::move(peer)), settings_(settings), spoke_at_(now), hearing_(now) {}

void ControlLink::set_limits(ControlLinkSettings settings, TimePoint now) {
  settings_ = settings;
  hearing_.restart(now);
}

void ControlLink::append(Kind kind, ByteView body) {
  if (is_over_) return;
  uint32_t length = static_cast<uint32_t>(body.size());
  for (int shift = 0; shift < 32; shift += 8) outgoing_.push_back(static_cast<std::byte>(length >> shift));
  outgoing_.push_back(static_cast<std::byte>(kind));
  outgoing_.insert(outgoing_.end(), body.begin(), body.end());
  outgoing_.resize(round_up(outgoing_.size(), kSendUnit));
  spoke_ = true;
  write();
}

void ControlLink::send(ByteView message) { append(Kind::message, message); }

void ControlLink::spread(const Status& failure) {
  if (std::exchange(has_spread_, true)) return;
  Bytes body;
  Encoder out(body);
  out.varint(static_cast<uint64_t>(failure.code()));
  out.text(failure.message());
  encode(out, failure.origin());
  append(Kind::failure, body);
}

void ControlLink::say_goodbye() { append(Kind::goodbye, {}); }

void ControlLink::write() {
  while (!is_over_ && has_unsent()) {
    auto count = stream_->write(ByteView(outgoing_).subspan(sent_));
    if (!count.ok()) break;  // the peer is gone but may have sent a last message: read() reports the end
    if (*count == 0) return;
    sent_ += *count;
  }
  outgoing_.clear();
  sent_ = 0;
}

void ControlLink::read(TimePoint now) {
  if (space_ == nullptr) space_.reset(new std::byte[kReadAtOnce]);  // not zero-filled: it is read often
  while (!is_over_) {
    auto count = stream_->read({space_.get(), kReadAtOnce});
    if (count.ok() && *count == 0) return;
    if (count.ok()) {
      hearing_.hear(now);
      incoming_.insert(incoming_.end(), space_.get(), space_.get() + *count);
    }
    scan();
    if (!count.ok()) return end(count.status().message());
    if (*count < kReadAtOnce && !stream_->has_buffered()) return;
  }
}

bool ControlLink::next_frame(const Bytes& from, size_t& at, Frame& frame) {
  ByteView bytes = ByteView(from).subspan(at);
  if (bytes.size() < kHead) return false;
  uint32_t length = 0;
  for (size_t i = 0; i < 4; i++) length |= static_cast<uint32_t>(bytes[i]) << (8 * i);
  uint8_t kind = static_cast<uint8_t>(bytes[4]);
  if (length > kLargestFrame || kind > static_cast<uint8_t>(Kind::goodbye)) {
    end("it sent invalid data");
    return false;
  }
  size_t whole = round_up(kHead + length, kSendUnit);
  if (bytes.size() < whole) return false;
  frame = {static_cast<Kind>(kind), bytes.subspan(kHead, length)};
  at += whole;
  return true;
}

void ControlLink::scan() {
  Frame frame;
  while (next_frame(incoming_, scanned_, frame)) {
    if (frame.kind == Kind::failure) take_failure(frame.body);
    if (frame.kind == Kind::goodbye) has_departed_ = true;
  }
}

void ControlLink::take_failure(ByteView body) {
  Decoder in(body);
  auto code = in.varint();
  std::string text(in.text());
  Origin origin = decode_origin(in);
  if (failure_.ok()) {
    failure_ = {in.ok() ? error_code_of(code) : Code::unknown, std::move(text), std::move(origin)};
  }
}

// The bytes read are moved as a whole, so further reads do not move the memory of a returned view.
bool ControlLink::receive(ByteView& message) {
  Frame frame;
  for (;;) {
    while (next_frame(whole_, taken_, frame)) {
      if (frame.kind != Kind::message) continue;
      message = frame.body;
      return true;
    }
    whole_.clear();
    taken_ = 0;
    if (scanned_ == 0) return false;
    whole_.swap(incoming_);
    incoming_.assign(whole_.begin() + static_cast<ptrdiff_t>(scanned_), whole_.end());
    whole_.resize(scanned_);
    scanned_ = 0;
  }
}

bool ControlLink::has_messages() const { return taken_ < whole_.size() || scanned_ > 0; }

Status ControlLink::progress(TimePoint now) {
  hearing_.look(now, settings_.silence);
  read(now);
  if (now >= spoke_at_ + settings_.heartbeat && !has_unsent()) append(Kind::heartbeat, {});
  write();
  if (std::exchange(spoke_, false)) spoke_at_ = now;
  if (now >= hearing_.heard_at() + settings_.silence)
    give_up(fmt::format("silent for {:.1f} s", seconds_of(now - hearing_.heard_at())));
  return lost_;
}

TimePoint ControlLink::next_deadline() const {
  return is_over_ || !has_unsent() ? kNever : hearing_.looked_at() + kRetry;
}

TimePoint ControlLink::next_beat() const {
  if (is_over_) return kNever;
  TimePoint lost = hearing_.heard_at() + settings_.silence;
  return has_unsent() ? lost : std::min(lost, spoke_at_ + settings_.heartbeat);
}

void ControlLink::end(std::string_view reason, OriginKind kind) {
  if (std::exchange(is_over_, true) || has_departed_) return;
  lost_ = lost(kind, reason);
}

// The peer may still receive from us, if the network is cut in one direction: then it gets the reason.
void ControlLink::give_up(std::string_view reason) {
  spread(lost(OriginKind::silent, reason));
  write();
  end(reason, OriginKind::silent);
}

Status ControlLink::lost(OriginKind kind, std::string_view reason) const {
  Origin origin = who_;
  origin.kind = kind;
  return {Code::peer_lost, fmt::format("{} is lost: {}", peer_, reason), std::move(origin)};
}

}  // namespace hvd
