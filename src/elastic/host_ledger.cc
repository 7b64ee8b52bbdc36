#include "elastic/host_ledger.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/joined.h"

namespace hvd::elastic {
namespace {

// Between 0 and 1, the same on every machine for the same arguments.
double chance(uint64_t seed, std::string_view host, int incidents) {
  uint64_t bits = 0xcbf29ce484222325u;
  for (unsigned char letter : host) bits = (bits ^ letter) * 0x100000001b3u;  // FNV-1a, then the end of splitmix64
  bits += seed * 0xd1342543de82ef95u + static_cast<uint64_t>(incidents) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
}

const HostSlots* find(const std::vector<HostSlots>& hosts, std::string_view name) {
  auto host = std::find_if(hosts.begin(), hosts.end(), [&](const HostSlots& each) { return each.name == name; });
  return host == hosts.end() ? nullptr : &*host;
}

}  // namespace

std::string HostLedger::list(const std::vector<HostSlots>& hosts) {
  std::map<std::string_view, int> slots;
  for (const HostSlots& host : hosts) {
    if (host.slots > 0) slots.emplace(host.name, host.slots);
  }
  std::vector<std::string> changes;
  std::vector<HostSlots> next;
  std::set<std::string_view> known;
  for (HostSlots& host : hosts_) {
    known.insert(host.name);
    auto now = slots.find(host.name);
    if (now == slots.end()) {
      changes.push_back("removed " + host.name);
      continue;
    }
    if (now->second != host.slots)
      changes.push_back(fmt::format("slots of {} {} -> {}", host.name, host.slots, now->second));
    next.push_back({host.name, now->second});
  }
  for (const HostSlots& host : hosts) {
    auto now = slots.find(host.name);
    if (now == slots.end() || !known.insert(host.name).second) continue;
    changes.push_back(fmt::format("added {}:{}", host.name, now->second));
    next.push_back({host.name, now->second});
  }
  hosts_ = std::move(next);
  return joined(changes, ", ");
}

// Names may never return, such as those of cloud machines: a record without information is dropped.
HostLedger::Record& HostLedger::record_of(const std::string& host, TimePoint now) {
  std::erase_if(records_, [&](const auto& entry) { return now - entry.second.until >= back_off_.upper; });
  return records_[host];
}

Duration HostLedger::failed(const std::string& host, TimePoint now) {
  Record& record = record_of(host, now);  // a host without failures for the longest rest time starts afresh
  if (record.until > now) {
    record.until = std::max(record.until, now + back_off_.lower);
    return record.until - now;
  }
  double lower = seconds_of(back_off_.lower);
  double rest = lower * static_cast<double>(uint64_t{1} << std::min(record.incidents, 40)) +
                lower * chance(seed_, host, record.incidents);
  record.incidents++;
  Duration delay = seconds(std::clamp(rest, lower, seconds_of(back_off_.upper)));
  record.until = now + delay;
  return delay;
}

void HostLedger::rest(const std::string& host, TimePoint now, Duration time) {
  Record& record = record_of(host, now);
  record.until = std::max(record.until, after(now, time));
}

bool HostLedger::has(std::string_view host, int slot) const {
  const HostSlots* listed = find(hosts_, host);
  return listed != nullptr && slot < listed->slots;
}

TimePoint HostLedger::rests_until(const std::string& host) const {
  auto record = records_.find(host);
  return record == records_.end() ? TimePoint{} : record->second.until;
}

int HostLedger::count_slots() const {
  int64_t count = 0;
  for (const HostSlots& host : hosts_) count += host.slots;
  return static_cast<int>(std::min<int64_t>(count, INT32_MAX));
}

}  // namespace hvd::elastic
