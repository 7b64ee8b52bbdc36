#include "elastic/discovery.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/joined.h"
#include "base/number.h"

namespace hvd::elastic {
namespace {

constexpr size_t kMaxMistakes = 4;
constexpr size_t kMaxName = 255;  // of a host in the DNS
constexpr int kMaxSlots = 4096;
constexpr size_t kMaxShown = 80;  // of an invalid line

bool is_blank(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\v' || letter == '\f';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

bool is_letter_or_digit(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
}

bool is_name(std::string_view text) {
  auto may_be = [](char letter) {
    return is_letter_or_digit(letter) || std::string_view("._-@").find(letter) != std::string_view::npos;
  };
  // ssh would take a name that starts with a dash as an option.
  return !text.empty() && text.size() <= kMaxName && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), may_be);
}

// A rough check: other errors are found when the address is used. A zone may follow a %.
bool is_ipv6(std::string_view text) {
  std::string_view address = text.substr(0, text.find('%'));
  bool has_zone = address.size() < text.size();
  auto may_be = [](char letter) {
    return std::string_view("0123456789abcdefABCDEF:.").find(letter) != std::string_view::npos;
  };
  return text.size() <= kMaxName && std::count(address.begin(), address.end(), ':') >= 2 &&
         std::all_of(address.begin(), address.end(), may_be) && (!has_zone || is_name(text.substr(address.size() + 1)));
}

// Control characters and non-ASCII bytes would disturb the terminal.
std::string shown(std::string_view line) {
  std::string text(line.substr(0, kMaxShown));
  for (char& letter : text) letter = letter >= ' ' && letter <= '~' ? letter : '?';
  return line.size() > kMaxShown ? text + "..." : text;
}

// Empty if the line is not a host; `why` has the reason.
std::optional<HostSlots> parse_line(std::string_view line, int default_slots, std::string_view& why) {
  std::string_view name = line, slots;
  bool has_slots = false;
  if (line.front() == '[') {
    size_t end = line.find(']');
    if (end == std::string_view::npos) return why = "has no ]", std::nullopt;
    name = line.substr(1, end - 1);
    slots = line.substr(end + 1);
    has_slots = !slots.empty();
    if (!is_ipv6(name)) return why = "has no IPv6 address in its brackets", std::nullopt;
    if (has_slots && slots.front() != ':')
      return why = "has something other than :slots after the address", std::nullopt;
    if (has_slots) slots.remove_prefix(1);
  } else if (!is_ipv6(line)) {
    size_t colon = line.find(':');
    has_slots = colon != std::string_view::npos;
    name = line.substr(0, colon);
    if (has_slots) slots = line.substr(colon + 1);
    if (!is_name(name)) return why = "is not a host name", std::nullopt;
  }
  if (!has_slots) return HostSlots{std::string(name), default_slots};
  std::optional<int> count = read_number<int>(trimmed(slots));
  if (!count || *count < 0 || *count > kMaxSlots) return why = "has an invalid number of slots", std::nullopt;
  return HostSlots{std::string(name), *count};
}

std::string last_line_of(std::string_view text) {
  text = trimmed(text);
  while (!text.empty() && (text.back() == '\n' || is_blank(text.back()))) text.remove_suffix(1);
  size_t line = text.rfind('\n');
  return shown(trimmed(line == std::string_view::npos ? text : text.substr(line + 1)));
}

}  // namespace

DiscoveryAnswer parse_discovery(std::string_view output, int default_slots) {
  DiscoveryAnswer answer;
  std::map<std::string, size_t> index;
  size_t mistakes = 0;
  while (!output.empty()) {
    size_t end = std::min(output.find('\n'), output.size());
    std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    std::string_view why;
    std::optional<HostSlots> host = parse_line(line, default_slots, why);
    if (!host) {
      if (mistakes++ < kMaxMistakes) answer.mistakes.push_back(fmt::format("\"{}\" {}", shown(line), why));
      continue;
    }
    auto [at, is_new] = index.emplace(host->name, answer.hosts.size());
    if (is_new)
      answer.hosts.push_back(std::move(*host));
    else
      answer.hosts[at->second].slots = host->slots;
  }
  if (mistakes > kMaxMistakes) {
    size_t more = mistakes - kMaxMistakes;
    answer.mistakes.push_back(fmt::format("and {} more line{}", more, more == 1 ? "" : "s"));
  }
  return answer;
}

Discovery::Step Discovery::next_step(TimePoint now, std::vector<Say>& said) {
  if (!started_) {
    if (now < timer_) return Step::nothing;
    started_ = now;
    killed_ = false;
    timer_ = after(now, std::min(settings_.slow, settings_.limit));
    return Step::start;
  }
  TimePoint limit = after(*started_, settings_.limit);
  if (killed_ || now < timer_) return Step::nothing;
  if (now >= limit) {
    killed_ = true;
    timer_ = kNever;  // the process will end next
    return Step::kill;
  }
  timer_ = limit;
  if (!std::exchange(said_slow_, true)) {
    said.push_back({LogLevel::warning,
                    fmt::format("the host discovery script has been running for {:.1f} s; the limit is {:.1f} s",
                                seconds_of(settings_.slow), seconds_of(settings_.limit))});
  }
  return Step::nothing;
}

Discovery::Outcome Discovery::ended(const Run& run, TimePoint now) {
  Outcome outcome;
  TimePoint started = started_.value_or(now);
  timer_ = std::max(after(started, settings_.every), after(now, settings_.pause));
  if (now - started < settings_.slow) said_slow_ = false;
  started_.reset();
  if (run.code != 0 || run.signal != 0 || killed_) {
    report_failure(run, outcome);
    return outcome;
  }
  if (int failures = std::exchange(failures_, 0); failures > 0) {
    outcome.said.push_back(
        {LogLevel::info, fmt::format("the host discovery script works again after {} failed runs", failures)});
  }
  DiscoveryAnswer answer = parse_discovery(run.output, settings_.default_slots);
  report_mistakes(answer, outcome);
  if (last_ != answer.hosts) {
    last_ = answer.hosts;
    outcome.hosts = HostsDiscovered{std::move(answer.hosts)};
  }
  return outcome;
}

void Discovery::report_failure(const Run& run, Outcome& outcome) {
  std::string how = killed_           ? fmt::format("took more than {:.1f} s", seconds_of(settings_.limit))
                    : run.signal != 0 ? fmt::format("was killed by signal {}", run.signal)
                                      : fmt::format("ended with exit code {}", run.code);
  if (std::string words = last_line_of(run.errors); !words.empty()) how += ": " + words;
  bool is_first = failures_++ == 0;
  if (!last_) {
    outcome.status = Status(Code::invalid_argument, "the first run of the host discovery script " + how);
    return;
  }
  if (!is_first) return;
  outcome.said.push_back(
      {LogLevel::warning, fmt::format("the host discovery script {}; the hosts are unchanged", how)});
}

void Discovery::report_mistakes(const DiscoveryAnswer& answer, Outcome& outcome) {
  bool were_said = std::exchange(said_mistakes_, !answer.mistakes.empty());
  if (were_said || answer.mistakes.empty()) return;
  outcome.said.push_back(
      {LogLevel::warning, "lines of the host discovery script are skipped: " + joined(answer.mistakes, "; ")});
}

}  // namespace hvd::elastic
