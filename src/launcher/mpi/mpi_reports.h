// Collects the end reports of ranks that mpirun or jsrun have started: a store in the launcher
// (rendezvous/report_store.h), which the ranks find in their environment. Only processes with the key, which is in that
// environment, can connect. Thread rule: one thread, besides the store's own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/end_report.h"
#include "base/status.h"
#include "launcher/command_line/options.h"
#include "launcher/mpi/mpi_job.h"
#include "rendezvous/report_store.h"
#include "rendezvous/store_server.h"

namespace hvd::launcher {

class MpiReports {
 public:
  // Listens only on this machine if all ranks are here.
  static Result<MpiReports> create(const Options& options, const MpiJob& job);

  std::string variable() const { return encode(location_); }  // the value of kReportStoreVariable
  std::vector<EndReport> read() const;                        // the reports so far

 private:
  MpiReports(ReportStore location, std::unique_ptr<StoreServer> store)
      : location_(std::move(location)), store_(std::move(store)) {}

  ReportStore location_;
  std::unique_ptr<StoreServer> store_;
};

}  // namespace hvd::launcher
