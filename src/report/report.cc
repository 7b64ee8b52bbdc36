#include "report/report.h"

#include <fstream>

#include "report/analysis.h"
#include "report/render.h"
#include "report/trace_reader.h"

namespace hvd::report {

Result<std::string> make_report(const ReportRequest& request) {
  auto trace = read_trace(request.path);
  if (!trace.ok()) return trace.status();
  Findings found = analyse(std::move(*trace));
  if (!request.html_file.empty()) {
    std::ofstream file(request.html_file, std::ios::binary);
    file << render_html(found);
    file.close();
    if (!file) return system_error("cannot write the report to", request.html_file);
  }
  return request.json ? render_json(found) : render_text(found);
}

}  // namespace hvd::report
