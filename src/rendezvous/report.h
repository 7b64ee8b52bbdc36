// The result of one step of forming a world, as bytes: a value, or the error for all ranks.
// Thread rule: pure functions.
#pragma once

#include "base/status.h"
#include "base/wire.h"

namespace hvd {

inline Bytes encode_report(const Result<Bytes>& report) {
  Bytes bytes;
  Encoder out(bytes);
  out.u8(static_cast<uint8_t>(report.status().code()));
  if (report.ok()) {
    out.bytes(report.value());
  } else {
    out.text(report.status().message());
    encode(out, report.status().origin());
  }
  return bytes;
}

inline Result<Bytes> decode_report(ByteView bytes) {
  Decoder in(bytes);
  Code code = in.one_of(Code::not_initialized);
  if (in.ok() && code == Code::ok) {
    ByteView value = in.bytes(in.left());
    return Bytes(value.begin(), value.end());
  }
  std::string text(in.text());
  Origin origin = decode_origin(in);
  if (!in.ok()) return Status(Code::unknown, "a report of another rank cannot be read");
  return Status(code, text, std::move(origin));
}

}  // namespace hvd
