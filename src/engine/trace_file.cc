#include "engine/trace_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <utility>

namespace hvd {

// A write replaces the closing bracket with new events and a new bracket. SIGKILL may cut a write short, but only
// between two pages: the kernel copies page by page and looks for the signal before each. So
// * a write stays within one page of the file and comes from one page of memory (`page_`), which makes it all or
//   nothing. An event that does not fit into the rest of its page starts the next one.
// * the bracket moves to the next page in three steps. It goes to the last byte of its page; then a newline, which may
//   follow it, makes room on the next page; then the two bytes around the page boundary become newline and bracket,
//   through a mapping and by a single store instruction, and a process does not die within an instruction.
// A file system without mmap gets a plain write of these two bytes: only there, a kill in the microsecond between the
// two pages omits the bracket.

namespace {

constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, which older C libraries lack

struct [[gnu::packed]] TwoBytes {  // packed: stored by one instruction at any address
  uint16_t value;
};

}  // namespace

Result<std::unique_ptr<TraceFile>> TraceFile::create(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return system_error("cannot open timeline file", path);
  return std::unique_ptr<TraceFile>(new TraceFile(std::move(fd), path));
}

Status TraceFile::append(std::string_view event) {
  assert(event.size() <= kMaxEventBytes);
  if (used_ + event.size() > kMaxEventBytes) {
    if (Status status = start_page(); !status.ok()) return status;
  }
  page_[used_++] = std::exchange(separator_, ',');
  std::copy(event.begin(), event.end(), page_.begin() + used_);
  used_ += event.size();
  page_[used_++] = '\n';
  return {};
}

Status TraceFile::flush() {
  page_[used_] = ']';
  Status status = write(std::string_view(page_.data() + written_, used_ + 1 - written_), start_ + written_);
  written_ = used_;
  return status;
}

Status TraceFile::start_page() {
  std::fill(page_.begin() + used_, page_.end(), ' ');
  used_ = kPage - 1;
  if (Status status = flush(); !status.ok()) return status;
  start_ += kPage;
  used_ = written_ = 0;
  if (Status status = write("\n", start_); !status.ok()) return status;
  return move_bracket() ? Status() : write("\n]", start_ - 1);
}

// From the byte before start_ to the byte at start_; false: this file cannot be mapped.
bool TraceFile::move_bracket() const {
  size_t system_page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  size_t from = (start_ - 1) / system_page * system_page;
  size_t length = start_ + 1 - from;
  void* map = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), static_cast<off_t>(from));
  if (map == MAP_FAILED) return false;
  bool writable = ::madvise(map, length, kPopulateWrite) == 0;  // a full disk is an error here, and a SIGBUS otherwise
  if (writable) {
    char* last_byte = static_cast<char*>(map) + (start_ - 1 - from);
    reinterpret_cast<volatile TwoBytes*>(last_byte)->value = std::bit_cast<uint16_t>(std::array{'\n', ']'});
  }
  ::munmap(map, length);
  return writable;
}

Status TraceFile::write(std::string_view text, size_t offset) const {
  while (!text.empty()) {
    ssize_t count = ::pwrite(fd_.get(), text.data(), text.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error("cannot write timeline file", path_, count < 0 ? errno : ENOSPC);
    text.remove_prefix(static_cast<size_t>(count));
    offset += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace hvd
