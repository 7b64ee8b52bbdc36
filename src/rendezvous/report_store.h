// How ranks that the launcher did not start itself (mpirun did) report their end: the launcher hosts a store, names it
// in their environment, and reads their reports after mpirun has exited. Ranks that the launcher starts have a pipe
// instead (base/end_report.h). Thread rule: plain values; send_report() and read_reports() block until their deadline
// at most.
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

// A single word for the environment. As secret as the key.
std::string encode(const ReportStore& store);
Result<ReportStore> decode_report_store(std::string_view text);

// Sends a rank's report. A normal end need not be reported: see is_worth_telling().
Status send_report(const ReportStore& store, const EndReport& report, TimePoint deadline);
// A normal end of a rank is reported by the ranks that needed it, if there are any.
bool is_worth_telling(const EndReport& report);

// All reports so far, the earliest first as far as the clocks of the hosts agree.
Result<std::vector<EndReport>> read_reports(const ReportStore& store, TimePoint deadline);

}  // namespace hvd
