// Metrics in the text format of OpenMetrics 1.0, for Prometheus. Thread rule: pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace hvd::observe {

inline constexpr const char* kOpenMetricsType = "application/openmetrics-text; version=1.0.0; charset=utf-8";

// `ranks` as metrics_of() returns them; those of another form are left out.
std::string open_metrics(const std::vector<nlohmann::json>& ranks, const std::string& host);

}  // namespace hvd::observe
