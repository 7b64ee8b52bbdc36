// The hosts of an elastic job: which are listed now, oldest first, and which get no new worker for a while because one
// failed there. A host is never banned: every rest ends. Pure. Thread rule: one caller at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "elastic/events.h"
#include "elastic/settings.h"

namespace hvd::elastic {

class HostLedger {
 public:
  HostLedger(BackOff back_off, uint64_t seed) : back_off_(back_off), seed_(seed) {}

  // Hosts that stay keep their order; new ones follow. Returns the changes as text ("added b:2; removed c"); empty:
  // none. Records of failures are kept when a host is removed and added again.
  std::string list(const std::vector<HostSlots>& hosts);

  // A worker failed there. Failures while the host rests are one incident, which extends the rest to at least the
  // shortest rest from now. Returns the time left.
  Duration failed(const std::string& host, TimePoint now);
  void rest(const std::string& host, TimePoint now, Duration time);  // without a failure

  const std::vector<HostSlots>& hosts() const { return hosts_; }
  bool has(std::string_view host, int slot) const;
  TimePoint rests_until(const std::string& host) const;  // a time in the past: it is not resting
  int count_slots() const;
  size_t count_records() const { return records_.size(); }  // hosts with a record of failures

 private:
  struct Record {
    int incidents = 0;
    TimePoint until{};
  };

  Record& record_of(const std::string& host, TimePoint now);

  BackOff back_off_;
  uint64_t seed_;
  std::vector<HostSlots> hosts_;
  std::map<std::string, Record> records_;  // of hosts that rest, or have rested recently
};

}  // namespace hvd::elastic
