// How ranks that the launcher did not start itself (mpirun did) tell it how they end: the launcher hosts a store, names
// it in their environment, and reads what they have set there once mpirun has ended. Ranks that the launcher starts
// have a pipe instead (base/end_report.h).
// Thread rule: plain values; send_report() and the reading block until their deadline at most.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/end_report.h"
#include "base/status.h"
#include "net/key.h"

namespace hvd {

inline constexpr const char* kReportStoreVariable = "_HOROVOD_REPORT_STORE";

struct ReportStore {
  std::string addresses;  // separated by commas
  uint16_t port = 0;
  Key key;
  std::string tls_identity;  // empty: no TLS
};

// One word for the environment. As secret as the key.
std::string encode(const ReportStore& store);
Result<ReportStore> decode_report_store(std::string_view text);

// A rank tells how it ends. That all is well need not be told: see is_worth_telling().
Status send_report(const ReportStore& store, const EndReport& report, TimePoint deadline);
// A rank that ends by itself is told by those that needed it, if there are any.
bool is_worth_telling(const EndReport& report);

// All that was told so far, the earliest first as far as the clocks of the hosts agree.
Result<std::vector<EndReport>> read_reports(const ReportStore& store, TimePoint deadline);

}  // namespace hvd
