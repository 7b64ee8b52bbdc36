#include "launcher/command_line/options.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/joined.h"
#include "launcher/command_line/arguments.h"
#include "launcher/command_line/closest.h"
#include "launcher/command_line/option_table.h"
#include "launcher/hosts/hosts.h"
#include "launcher/hosts/local_names.h"

namespace hvd::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content) {
    int fd = ::mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    ::close(fd);
    std::ofstream(path_) << content;
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/hvd_options_test.XXXXXX";
};

const char* nothing(const char*) { return nullptr; }

Options parse(const std::vector<std::string>& arguments) {
  auto options = parse_options(arguments, nothing);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return options.ok() ? *options : Options();
}

TEST(OptionTable, NamesAreUniqueAndRowsComplete) {
  std::map<std::string_view, int> names;
  for (const OptionRow& row : option_rows()) {
    for (std::string_view name : words_of(row.names)) ++names[name];
    for (std::string_view name : words_of(row.opposite)) ++names[name];
    EXPECT_TRUE(main_name(row).starts_with("--")) << row.names;
    EXPECT_TRUE(*row.group == '\0' || !text_of(row).empty()) << row.names;
    EXPECT_EQ(std::holds_alternative<Switch>(row.target), *row.opposite != '\0') << row.names;
    bool is_group = *row.group == '\0';
    for (const char* group : option_groups()) is_group = is_group || std::string_view(group) == row.group;
    EXPECT_TRUE(is_group) << row.names;
  }
  for (const auto& [name, count] : names) EXPECT_EQ(count, 1) << name;
}

TEST(ParseOptions, EveryFieldOfRemoteJobs) {
  Options options = parse({"-np",
                           "3",
                           "-H",
                           "me@a:2,[fd00::1]:1",
                           "-p",
                           "2222",
                           "-i",
                           "key",
                           "--ssh-strict",
                           "--network-interface",
                           "eth0",
                           "--network-interface",
                           "ib0",
                           "--start-timeout",
                           "9",
                           "--disable-cache",
                           "--bind-to",
                           "numa",
                           "--tls",
                           "prog",
                           "-x"});
  EXPECT_EQ(options.action, Options::Action::run);
  EXPECT_EQ(options.num_proc, 3);
  EXPECT_EQ(options.hosts, (std::vector<Host>{{"a", 2, "me"}, {"fd00::1", 1, ""}}));
  EXPECT_EQ(options.ssh_port, 2222);
  EXPECT_EQ(options.ssh_identity_file, "key");
  EXPECT_TRUE(options.ssh_strict);
  EXPECT_THAT(options.network_interfaces, ElementsAre("eth0", "ib0"));
  EXPECT_EQ(options.start_timeout, 9);
  EXPECT_TRUE(options.disable_cache);
  EXPECT_EQ(options.bind_to, "numa");
  EXPECT_TRUE(options.tls);
  EXPECT_THAT(options.command, ElementsAre("prog", "-x"));
}

TEST(ParseOptions, Agents) {
  Options agent = parse({"--agent", "--rendezvous", "[fd00::1]:4000", "--key-file", "-"});
  EXPECT_EQ(agent.action, Options::Action::agent);
  EXPECT_EQ(agent.rendezvous, "[fd00::1]:4000");
  EXPECT_EQ(agent.key_file, "-");
  Options launcher = parse({"-np", "4", "--agents", "2", "--rendezvous", "a:4000", "true"});
  EXPECT_EQ(launcher.action, Options::Action::run);
  EXPECT_EQ(launcher.agents, 2);
  EXPECT_TRUE(launcher.hosts.empty());
}

TEST(ParseOptions, Elastic) {
  Options options =
      parse({"-np", "4", "--host-discovery-script", "./d", "--min-np", "2", "--max-num-proc", "8", "--slots-per-host",
             "2", "--elastic-timeout", "60", "--reset-limit", "0", "--blacklist-cooldown-range", "5", "3600", "true"});
  EXPECT_TRUE(is_elastic(options));
  EXPECT_EQ(options.min_num_proc, 2);
  EXPECT_EQ(options.max_num_proc, 8);
  EXPECT_EQ(options.slots_per_host, 2);
  EXPECT_EQ(options.elastic_timeout, 60);
  EXPECT_EQ(options.reset_limit, 0);
  EXPECT_EQ(options.blacklist_cooldown, std::make_pair(5, 3600));
  EXPECT_FALSE(is_elastic(parse({"-np", "1", "--max-np", "2", "true"})));
}

TEST(ParseOptions, StartTimeoutOfTheEnvironment) {
  auto lookup = [](const char* name) { return std::string_view(name) == "HOROVOD_START_TIMEOUT" ? "77" : nullptr; };
  auto options = parse_options({"-np", "1", "true"}, lookup);
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->start_timeout, 77);
  EXPECT_TRUE(options->variables.empty());  // the workers inherit it
}

TEST(ParseOptions, DoctorNeedsHostsAndNoCommand) {
  Options options = parse({"--doctor", "-H", "a:2,b:2", "--json"});
  EXPECT_EQ(options.action, Options::Action::doctor);
  EXPECT_TRUE(options.json);
  EXPECT_EQ(options.hosts.size(), 2u);
  EXPECT_EQ(parse({"--doctor"}).hosts, (std::vector<Host>{{"localhost", 1, ""}}));
}

// For any input, the result is options or a one-sentence error; earlier words determine how a word is parsed.
TEST(ParseOptions, RandomWordsAreAnsweredInOneLine) {
  std::vector<std::string> words{"-np", "2", "-H",  "a:1", "--",   "true",  "-",
                                 "",    "=", "--=", "-=x", "-np=", "--no-", "x=y"};
  for (const OptionRow& row : option_rows())
    for (std::string_view name : words_of(row.names)) words.emplace_back(name);
  std::mt19937 random(5);
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> line(random() % 8);
    for (std::string& word : line) {
      word = words[random() % words.size()];
      if (random() % 4 == 0) word = word.substr(0, random() % (word.size() + 1));
      if (random() % 8 == 0) word += "=" + words[random() % words.size()];
    }
    auto options = parse_options(line, nothing);
    EXPECT_EQ(options.status().message().find('\n'), std::string_view::npos) << joined(line, " ");
  }
}

TEST(Closest, CountsSlipsOfTheKeyboard) {
  EXPECT_EQ(closest("--vrebose", {"--version", "--verbose"}), "--verbose");
  EXPECT_EQ(closest("-pn", {"-h", "-np"}), "-np");
  EXPECT_EQ(closest("abc", {"abd", "abc"}), "abc");
  EXPECT_EQ(closest("--qqqqqqq", {"--hosts", "--json"}), "");
  EXPECT_EQ(closest("--tmeline", {"--tcp", "--time", "--timeline-filename"}), "--timeline-filename");
  EXPECT_EQ(closest("--netwrok-int", {"--num-proc", "--network-interfaces"}), "--network-interfaces");
  EXPECT_EQ(closest("--hots", {"--hostfile", "--hosts"}), "--hosts") << "a whole word is nearer than a beginning";
  EXPECT_EQ(closest("--xy", {"--timeline-filename", "--network-interfaces"}), "");
}

TEST(Hosts, WhateverIsWrittenIsReadBack) {
  std::mt19937 random(7);
  const std::vector<std::string> names{"a", "n-1", "x.example", "10.0.0.7", "fd00::1", "fe80::2%ib0", "node_3", "9"};
  for (int round = 0; round < 300; ++round) {
    std::vector<Host> hosts;
    std::vector<std::string> texts, lines;
    for (const std::string& name : names) {
      if (random() % 2 == 0) continue;
      Host host{name, static_cast<int>(1 + random() % 9), random() % 3 == 0 ? "me" : ""};
      std::string text = (host.user.empty() ? "" : host.user + "@") +
                         (name.find(':') == std::string::npos ? name : fmt::format("[{}]", name));
      bool is_one = random() % 3 == 0;
      if (is_one) host.slots = 1;
      texts.push_back(is_one ? text : fmt::format("{}:{}", text, host.slots));
      lines.push_back(is_one || random() % 2 == 0 ? texts.back()
                                                  : fmt::format("\t{} slots = {} # x", text, host.slots));
      if (random() % 4 == 0) lines.emplace_back("  # comment");
      hosts.push_back(std::move(host));
    }
    if (hosts.empty()) continue;
    auto parsed = parse_hosts(joined(texts, ","));
    ASSERT_TRUE(parsed.ok()) << parsed.status().message();
    EXPECT_EQ(*parsed, hosts);
    TemporaryFile file(joined(lines, "\n"));
    auto read = read_hostfile(file.path());
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, hosts);
  }
}

TEST(Hosts, RandomTextIsAnsweredAndNeverStartsWithADash) {
  std::mt19937 random(9);
  constexpr std::string_view kLetters = "a1.-_@:[]%, ";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t length = random() % 16; length > 0; --length) text += kLetters[random() % kLetters.size()];
    auto hosts = parse_hosts(text);
    if (!hosts.ok()) continue;
    for (const Host& host : *hosts) {
      EXPECT_FALSE(host.name.empty() || host.name.starts_with('-') || host.user.starts_with('-')) << text;
      EXPECT_GT(host.slots, 0) << text;
    }
  }
}

TEST(LocalNames, TheHostsFileCountsWhereItNamesAnAddressOfThisMachine) {
  TemporaryFile nothing_of_ours("192.0.2.9 stranger\n127.0.0.1 blocked.example\n");
  LocalNames local = LocalNames::read(nothing_of_ours.path());
  EXPECT_FALSE(local.contains("stranger"));
  EXPECT_FALSE(local.contains("blocked.example"));
  EXPECT_TRUE(local.contains("localhost"));
  EXPECT_TRUE(local.contains("127.0.0.5"));
  EXPECT_TRUE(local.contains("0:0:0:0:0:0:0:1"));
  EXPECT_FALSE(local.contains("192.0.2.9"));
  EXPECT_FALSE(LocalNames::read("/no/such/file").contains(""));
}

}  // namespace
}  // namespace hvd::launcher
