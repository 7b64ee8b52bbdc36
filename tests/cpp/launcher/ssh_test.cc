#include "launcher/ssh/ssh.h"

#include <gmock/gmock.h>

#include "base/joined.h"

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Ssh ssh_with(const Options& options, std::vector<std::string> variables) {
  std::vector<char*> environment;
  for (std::string& each : variables) environment.push_back(each.data());
  environment.push_back(nullptr);
  return ssh_of(options, environment.data(), 30);
}

TEST(Ssh, TheUsersCommandComesFirstThenKubexecThenSsh) {
  EXPECT_THAT(ssh_with({}, {}).command, ElementsAre("ssh"));
  EXPECT_THAT(ssh_with({}, {"HOROVOD_SSH_COMMAND=  "}).command, ElementsAre("ssh"));
  EXPECT_THAT(ssh_with({}, {"OMPI_MCA_plm_rsh_agent=ssh -q"}).command, ElementsAre("ssh"));
  Ssh own =
      ssh_with({}, {"HOROVOD_SSH_COMMAND=/opt/bin/ssh  -F my.conf", "OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh"});
  EXPECT_THAT(own.command, ElementsAre("/opt/bin/ssh", "-F", "my.conf"));
  EXPECT_TRUE(own.is_openssh);
  EXPECT_FALSE(ssh_with({}, {"HOROVOD_SSH_COMMAND=rsh"}).is_openssh);
  Ssh kube = ssh_with({.ssh_port = 22}, {"OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh"});
  auto command = agent_command(kube, {.name = "pod-1"}, HostKeys::accept_new, "/x/horovodrun");
  ASSERT_EQ(command.size(), 3u);
  EXPECT_THAT(command, testing::ElementsAre("/etc/mpi/kubexec.sh", "pod-1", StartsWith("exec sh -c ")));
}

TEST(Ssh, AHostKeyIsTakenOnlyWhereTheUserLeftItOpen) {
  EXPECT_EQ(host_keys_of("user root\nstricthostkeychecking ask\nport 22\n"), HostKeys::accept_new);
  for (const char* set :
       {"stricthostkeychecking true\n", "stricthostkeychecking false\n", "stricthostkeychecking accept-new\n", ""})
    EXPECT_EQ(host_keys_of(set), HostKeys::as_configured) << set;
  Host host{.name = "b", .slots = 1, .user = "ada"};
  auto open = agent_command({}, host, HostKeys::accept_new, "/x/horovodrun");
  EXPECT_THAT(open, Contains("StrictHostKeyChecking=accept-new"));
  EXPECT_THAT(open, Contains("ada@b"));
  auto configured = agent_command({}, host, HostKeys::as_configured, "/x/horovodrun");
  EXPECT_THAT(joined(configured, " "), Not(HasSubstr("StrictHostKeyChecking")));
  auto strict = agent_command({.strict = true}, host, HostKeys::accept_new, "/x/horovodrun");
  EXPECT_THAT(strict, Contains("StrictHostKeyChecking=yes"));
  EXPECT_THAT(joined(strict, " "), Not(HasSubstr("accept-new")));
}

TEST(Ssh, APathIsQuotedForTheShell) {
  auto command = agent_command({}, {.name = "b"}, HostKeys::as_configured, "/it's here/horovodrun");
  EXPECT_THAT(command.back(), HasSubstr(R"('/it'\''s here/horovodrun')"));
}

TEST(Ssh, AnInvitationGoesToTheAgent) {
  auto command = agent_command({}, {.name = "b"}, HostKeys::as_configured, "/x/horovodrun", "12ab,1,2,10.0.0.2");
  EXPECT_THAT(command.back(), testing::EndsWith(" '/x/horovodrun' 12ab,1,2,10.0.0.2"));
  EXPECT_THAT(command.back(), HasSubstr("exec \"$0\" --agent - \"$@\";"));
}

TEST(Ssh, TheCommandToTryHasWhatTheUserGave) {
  Ssh ssh{.port = 2222, .identity_file = "key"};
  EXPECT_EQ(trial_command(ssh, {.name = "b", .slots = 1, .user = "ada"}), "ssh -p 2222 -i key ada@b true");
}

TEST(Ssh, FailuresAreExplained) {
  Host host{.name = "b"};
  auto why = [&](std::string_view said, Ending ending = {.number = 255}, std::string_view printed = "") {
    return explain_failure({}, host, ending, said, printed);
  };
  EXPECT_EQ(why("banner\nssh: Could not resolve hostname b: Name or service not known\r\n"),
            "Could not resolve hostname b: Name or service not known");
  EXPECT_THAT(why("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed."),
              HasSubstr("ssh-keygen -R b"));
  EXPECT_THAT(why("No ED25519 host key is known for b\nHost key verification failed.\r\n"), HasSubstr("not known;"));
  EXPECT_THAT(why("x\nada@b: Permission denied (publickey).\r\n"),
              HasSubstr("(ada@b: Permission denied (publickey).);"));
  EXPECT_THAT(why("horovodrun was not found (tried /x and PATH)\n", {.number = 127}),
              StartsWith("horovodrun was not found"));
  EXPECT_THAT(why("", {.number = 3}, "hello\n"),
              HasSubstr("exit code 3) before the agent answered; the login shell printed: hello"));
  EXPECT_THAT(why("", {.signalled = true, .number = 9}), HasSubstr("killed by SIGKILL"));
}

}  // namespace
}  // namespace hvd::launcher
