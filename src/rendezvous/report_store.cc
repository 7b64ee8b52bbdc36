#include "rendezvous/report_store.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/host_name.h"
#include "base/number.h"
#include "net/credentials.h"
#include "rendezvous/store_client.h"

namespace hvd {
namespace {

constexpr std::string_view kPrefix = "end/";
constexpr char kBetween = '/';  // addresses contain colons and commas

std::string_view take_field(std::string_view& text) {
  std::string_view field = text.substr(0, text.find(kBetween));
  text.remove_prefix(std::min(field.size() + 1, text.size()));
  return field;
}

Result<std::unique_ptr<StoreClient>> connect_to(const ReportStore& store, int32_t rank, TimePoint deadline) {
  Credentials credentials{.key = store.key, .tls = nullptr};
  if (!store.tls_identity.empty()) {
    auto tls = TlsContext::create(store.tls_identity);
    if (!tls.ok()) return tls.status();
    credentials.tls = std::move(*tls);
  }
  auto endpoints = resolve(store.addresses, store.port);
  if (!endpoints.ok()) return endpoints.status();
  return StoreClient::connect(std::move(*endpoints), credentials, rank, deadline);
}

}  // namespace

std::string encode(const ReportStore& store) {
  return fmt::format("{}{}{}{}{}{}{}", store.addresses, kBetween, store.port, kBetween, store.key.hex(), kBetween,
                     store.tls_identity);
}

Result<ReportStore> decode_report_store(std::string_view text) {
  std::string addresses(take_field(text));
  auto port = read_number<uint16_t>(take_field(text));
  auto key = Key::from_hex(take_field(text));
  if (addresses.empty() || !port || !key.ok())
    return Status(Code::invalid_argument, fmt::format("{} cannot be read", kReportStoreVariable));
  return ReportStore{
      .addresses = std::move(addresses), .port = *port, .key = *key, .tls_identity = std::string(take_field(text))};
}

bool is_worth_telling(const EndReport& report) {
  return report.is_consequence() || report.origin.kind != OriginKind::exit;
}

Status send_report(const ReportStore& store, const EndReport& report, TimePoint deadline) {
  auto client = connect_to(store, report.rank, deadline);
  if (!client.ok()) return client.status();
  // The store sorts by key. The keys of processes without a rank differ by host and pid.
  auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  std::string key = fmt::format("{}{:020} {} {} {}", kPrefix, now.count(), report.rank, host_name(), ::getpid());
  return (*client)->set(key, encode(report), deadline);
}

Result<std::vector<EndReport>> read_reports(const ReportStore& store, TimePoint deadline) {
  auto client = connect_to(store, -1, deadline);
  if (!client.ok()) return client.status();
  auto entries = (*client)->gather(kPrefix, 0, deadline);
  if (!entries.ok()) return entries.status();
  std::vector<EndReport> reports;
  for (const auto& [key, value] : *entries)
    if (auto report = decode_end_report(value); report.ok()) reports.push_back(std::move(*report));
  return reports;
}

}  // namespace hvd
