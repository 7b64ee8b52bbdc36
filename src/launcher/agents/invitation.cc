#include "launcher/agents/invitation.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/number.h"

namespace hvd {
namespace {

constexpr std::string_view kAnswer = " key ";
constexpr size_t kLongestAddresses = 4096;

std::optional<PublicKey> read_key(std::string_view hex) {
  auto bytes = from_hex(hex);
  PublicKey key;
  if (!bytes.ok() || bytes->size() != key.size()) return std::nullopt;
  std::copy(bytes->begin(), bytes->end(), key.begin());
  return key;
}

// The part of `text` before the next comma, which is taken out of it.
std::string_view take_part(std::string_view& text) {
  std::string_view part = text.substr(0, text.find(','));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

}  // namespace

std::string to_text(const Invitation& invitation) {
  return fmt::format("{},{},{},{}", to_hex(invitation.key), invitation.port, invitation.seconds, invitation.addresses);
}

Result<Invitation> parse_invitation(std::string_view text) {
  auto key = read_key(take_part(text));
  auto port = read_number<uint16_t>(take_part(text));
  auto seconds = read_number<int>(take_part(text));
  bool is_right = key && port && *port > 0 && seconds && *seconds > 0 && !text.empty();
  if (!is_right || text.size() > kLongestAddresses)
    return Status(Code::invalid_argument, "--agent - takes what a launcher wrote: KEY,PORT,SECONDS,ADDRESSES");
  return Invitation{.key = *key, .port = *port, .seconds = *seconds, .addresses = std::string(text)};
}

std::string answer_text(const PublicKey& key) { return fmt::format("{}{}", kAnswer, to_hex(key)); }

Result<PublicKey> parse_answer(std::string_view opening) {
  if (opening.starts_with(kAnswer))
    if (auto key = read_key(opening.substr(kAnswer.size()))) return *key;
  return Status(Code::precondition,
                "its agent answers in a way that this horovodrun does not know; install the same version");
}

}  // namespace hvd
