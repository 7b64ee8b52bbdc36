// horovodrun --report: reads a timeline of all ranks and says where the time goes. Called by the launcher's main.
// Thread rule: one call.
#pragma once

#include <string>

#include "base/status.h"

namespace hvd::report {

struct ReportRequest {
  std::string path;       // of the timeline, or of a folder with one
  std::string html_file;  // empty: no page
  bool json = false;
};

// What to print. The page is written before this returns.
Result<std::string> make_report(const ReportRequest& request);

}  // namespace hvd::report
