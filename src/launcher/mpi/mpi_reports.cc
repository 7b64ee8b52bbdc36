#include "launcher/mpi/mpi_reports.h"

#include <algorithm>

#include "base/joined.h"
#include "launcher/hosts/local_names.h"
#include "launcher/workers/meeting.h"
#include "net/tls.h"

namespace hvd::launcher {
namespace {

constexpr Duration kReadPatience = std::chrono::seconds(2);  // the store is in this process
constexpr const char* kThisMachine = "127.0.0.1";

}  // namespace

Result<MpiReports> MpiReports::create(const Options& options, const MpiJob& job) {
  bool is_here = std::all_of(job.hosts.begin(), job.hosts.end(), [](const Host& host) { return is_local(host); });
  auto listener = is_here ? listen_on(std::vector{*parse_ip(kThisMachine)}) : listen_on(options.network_interfaces);
  if (!listener.ok()) return listener.status();
  auto key = Key::random();
  if (!key.ok()) return key.status();
  ReportStore location{.addresses = {}, .port = 0, .key = *key, .tls_identity = {}};
  Credentials credentials{.key = *key, .tls = nullptr};
  if (!is_here && wants_tls(options)) {
    auto identity = make_tls_identity();
    if (!identity.ok()) return identity.status();
    auto tls = TlsContext::create(*identity);
    if (!tls.ok()) return tls.status();
    location.tls_identity = std::move(*identity);
    credentials.tls = std::move(*tls);
  }
  auto store = StoreServer::create(std::move(*listener), credentials);
  if (!store.ok()) return store.status();
  location.addresses = joined(published_addresses((*store)->endpoints()), ",");
  location.port = (*store)->port();
  return MpiReports(std::move(location), std::move(*store));
}

std::vector<EndReport> MpiReports::read() const {
  auto reports = read_reports(location_, Clock::now() + kReadPatience);
  return reports.ok() ? std::move(*reports) : std::vector<EndReport>();
}

}  // namespace hvd::launcher
