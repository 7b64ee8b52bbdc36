#include "base/end_report.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include <charconv>

namespace hvd {
namespace {

constexpr size_t kHead = 4;  // the length of a record, little-endian
static_assert(kHead + 2 * kLongestOriginName + kLongestOriginText + 64 < PIPE_BUF, "a record is written as a whole");

struct PipeName {
  int descriptor;
  uint64_t device, inode;
};

std::optional<PipeName> identify(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode)) return std::nullopt;
  return PipeName{descriptor, status.st_dev, status.st_ino};
}

std::string text_of(const PipeName& name) {
  return std::to_string(name.descriptor) + ":" + std::to_string(name.device) + ":" + std::to_string(name.inode);
}

}  // namespace

Bytes encode(const EndReport& report) {
  Bytes bytes;
  Encoder out(bytes);
  out.signed_varint(report.rank);
  encode(out, report.origin);
  return bytes;
}

Result<EndReport> decode_end_report(ByteView bytes) {
  Decoder in(bytes);
  EndReport report{.rank = static_cast<int32_t>(in.signed_varint()), .origin = decode_origin(in)};
  if (!in.ok()) return Status(Code::unknown, "the report of a worker cannot be read");
  return report;
}

std::string name_report_pipe(int descriptor) {
  auto name = identify(descriptor);
  return name ? text_of(*name) : "";
}

int open_report_pipe(std::string_view name) {
  int descriptor = -1;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), descriptor);
  if (error != std::errc() || descriptor < 0 || name_report_pipe(descriptor) != name) return -1;
  ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return descriptor;
}

void write_report(int descriptor, const EndReport& report) {
  if (!identify(descriptor)) return;  // the program has closed it
  Bytes body = encode(report), record;
  for (size_t i = 0; i < kHead; i++) record.push_back(static_cast<std::byte>(body.size() >> (8 * i)));
  record.insert(record.end(), body.begin(), body.end());
  // Written in full or not at all. The pipe is non-blocking: a launcher that does not read must not delay the worker.
  [[maybe_unused]] ssize_t written = ::write(descriptor, record.data(), record.size());
}

std::optional<EndReport> take_report(std::string& bytes) {
  if (bytes.size() < kHead) return std::nullopt;
  size_t length = 0;
  for (size_t i = 0; i < kHead; i++) length |= static_cast<size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  if (length > PIPE_BUF) {  // no worker writes this much
    bytes.clear();
    return std::nullopt;
  }
  if (bytes.size() < kHead + length) return std::nullopt;
  auto report = decode_end_report(std::as_bytes(std::span(bytes).subspan(kHead, length)));
  bytes.erase(0, kHead + length);
  return report.ok() ? std::optional(std::move(*report)) : std::nullopt;
}

}  // namespace hvd
