#include "base/origin.h"

namespace hvd {

std::string describe(const Origin& origin) {
  switch (origin.kind) {
    case OriginKind::none: return "failed";
    case OriginKind::exception:
      return "raised " + (origin.text.empty() ? origin.type : origin.type + ": " + origin.text);
    case OriginKind::exit: return origin.text.empty() ? "exited" : "exited with code " + origin.text;
    case OriginKind::signal: return "was killed by " + origin.text;
    case OriginKind::lost: return "is gone";
    case OriginKind::shutdown: return "called shutdown";
    case OriginKind::silent: return "fell silent";
    case OriginKind::internal: return origin.text.empty() ? "failed inside Horovod" : "failed: " + origin.text;
    case OriginKind::deadline: return "did not do its part in time";
  }
  return "failed";
}

std::string_view shortened(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) most--;
  return text.substr(0, most);
}

void encode(Encoder& out, const Origin& origin) {
  out.u8(static_cast<uint8_t>(origin.kind));
  if (origin.kind == OriginKind::none) return;
  out.signed_varint(origin.rank);
  out.text(shortened(origin.host, kLongestOriginName));
  out.signed_varint(origin.pid);
  out.text(shortened(origin.type, kLongestOriginName));
  out.text(shortened(origin.text, kLongestOriginText));
}

Origin decode_origin(Decoder& in) {
  Origin origin{.kind = in.one_of(kLastOriginKind)};
  if (origin.kind == OriginKind::none) return {};
  int64_t rank = in.signed_varint();
  if (rank < -1 || rank > INT32_MAX) in.fail();
  origin.rank = static_cast<int32_t>(rank);
  origin.host = in.text();
  origin.pid = in.signed_varint();
  origin.type = in.text();
  origin.text = in.text();
  return in.ok() ? origin : Origin{};
}

}  // namespace hvd
