#include "launcher/agents/invitation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/number.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kAnswer = " certificate ";
constexpr size_t kLongestAddresses = 4096;

std::optional<Fingerprint> read_fingerprint(std::string_view hex) {
  auto bytes = from_hex(hex);
  Fingerprint fingerprint;
  if (!bytes.ok() || bytes->size() != fingerprint.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), fingerprint.begin());
  return fingerprint;
}

// Removes and returns the part of `text` before the next comma.
std::string_view take_part(std::string_view& text) {
  std::string_view part = text.substr(0, text.find(','));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

}  // namespace

std::string to_text(const Invitation& invitation) {
  return fmt::format("{},{},{},{}", to_hex(invitation.certificate), invitation.port, invitation.seconds,
                     invitation.addresses);
}

Result<Invitation> parse_invitation(std::string_view text) {
  auto certificate = read_fingerprint(take_part(text));
  auto port = read_number<uint16_t>(take_part(text));
  auto seconds = read_number<int>(take_part(text));
  bool is_right = certificate && port && *port > 0 && seconds && *seconds > 0 && !text.empty();
  if (!is_right || text.size() > kLongestAddresses)
    return Status(Code::invalid_argument,
                  "--agent - expects the text that a launcher passes: CERTIFICATE,PORT,SECONDS,ADDRESSES");
  return Invitation{.certificate = *certificate, .port = *port, .seconds = *seconds, .addresses = std::string(text)};
}

std::string answer_text(const Fingerprint& certificate) { return fmt::format("{}{}", kAnswer, to_hex(certificate)); }

Result<Fingerprint> parse_answer(std::string_view opening) {
  if (opening.starts_with(kAnswer))
    if (auto certificate = read_fingerprint(opening.substr(kAnswer.size()))) return *certificate;
  return Status(Code::precondition,
                "its agent uses a protocol that this horovodrun does not support; install the same version");
}

// TLS authenticates both sides here. The handshake over it needs a key, too; this one binds it to the two certificates
// and is not secret.
Result<Credentials> invited_credentials(Side side, std::string_view own, const Fingerprint& peer) {
  auto mine = fingerprint_of(own);
  if (!mine.ok()) return mine.status();
  auto tls = TlsContext::create(own, peer);
  if (!tls.ok()) return tls.status();
  bool is_launcher = side == Side::launcher;
  auto key = Key::from_hex(to_hex(is_launcher ? *mine : peer) + to_hex(is_launcher ? peer : *mine));
  if (!key.ok()) return key.status();
  return Credentials{.key = *key, .tls = std::move(*tls)};
}

}  // namespace hvd::launcher
