#include "core/history.h"

#include <algorithm>

namespace standin {
namespace {

bool ordered(const SitePointer& earlier, const Site& now) {
  return earlier == nullptr || now.clock.at(earlier->timeline) >= earlier->step;
}

}  // namespace

std::map<size_t, History::Part>::iterator History::split(size_t offset) {
  auto part = std::prev(parts_.upper_bound(offset));
  if (part->first == offset || part->second.end <= offset) return part->first == offset ? part : parts_.end();
  Part rest = part->second;
  part->second.end = offset;
  return parts_.emplace(offset, std::move(rest)).first;
}

std::optional<Conflict> History::add(const SitePointer& site, size_t offset, size_t bytes, bool writes) {
  std::optional<Conflict> conflict;
  if (bytes == 0) return conflict;
  auto part = split(offset);
  const auto end = split(offset + bytes);
  for (; part != end; ++part) {
    Part& now = part->second;
    auto check = [&](const SitePointer& earlier, bool wrote) {
      if (!conflict && !ordered(earlier, *site))
        conflict = Conflict{earlier, wrote, part->first, now.end - part->first};
    };
    check(now.written, true);
    if (writes) {
      for (const SitePointer& read : now.read) check(read, false);
      now.read.clear();
      now.written = site;
    } else {
      std::erase_if(now.read, [&](const SitePointer& read) { return read->timeline == site->timeline; });
      now.read.push_back(site);
    }
  }
  return conflict;
}

}  // namespace standin
