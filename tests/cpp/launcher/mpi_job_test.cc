#include "launcher/mpi/mpi_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

Options far_hosts() {
  Options options;
  options.num_proc = 3;
  options.hosts = {{"far1.example", 2}, {"far2.example", 2}, {"far3.example", 1}};
  options.command = {"true"};
  return options;
}

Result<MpiJob> make(const Options& options, std::vector<std::string> environment = {}) {
  std::vector<char*> entries;
  for (std::string& entry : environment) entries.push_back(entry.data());
  entries.push_back(nullptr);
  auto slots = assign(options.hosts, options.num_proc);
  EXPECT_TRUE(slots.ok());
  return make_mpi_job(options, *slots, entries.data());
}

MpiJob job_of(const Options& options, std::vector<std::string> environment = {}) {
  auto job = make(options, std::move(environment));
  EXPECT_TRUE(job.ok()) << job.status().message();
  return job.ok() ? *job : MpiJob();
}

TEST(MpiJob, HasTheHostsThatGetRanksWithTheirNumber) {
  EXPECT_THAT(job_of(far_hosts()).hosts, ElementsAre(Host{"far1.example", 2}, Host{"far2.example", 1}));
}

TEST(MpiJob, PassesOnNamesOfVariablesThatMeanSomethingElsewhere) {
  MpiJob job = job_of(far_hosts(), {"PATH=/bin", "A=b", "PWD=/x", "SSH_TTY=t", "BASH_FUNC_f%%=() {", "OMPI_MCA_btl=tcp",
                                    "PMI_RANK=1", "HOROVOD_RANK=3", "_HOROVOD_SECRET_KEY=k", "CUDA_VISIBLE_DEVICES=0",
                                    "HOROVOD_CYCLE_TIME=1", "a b=c", "_=x", "SHLVL=2", "_HOROVOD_RUN_KEY=r"});
  EXPECT_THAT(job.inherited, UnorderedElementsAre("PATH", "A", "HOROVOD_CYCLE_TIME", "_HOROVOD_RUN_KEY"));
  EXPECT_THAT(job.mca_variables, ElementsAre("btl"));
}

TEST(MpiJob, HasTheOptionsOfSsh) {
  Options options = far_hosts();
  EXPECT_THAT(job_of(options).remote_shell_args, ElementsAre("-o", "BatchMode=yes"));
  EXPECT_THAT(job_of(options).remote_shell, IsEmpty());
  options.ssh_port = 2222;
  options.ssh_identity_file = "key";
  options.ssh_strict = true;
  for (Host& host : options.hosts) host.user = "me";
  MpiJob job = job_of(options, {"HOME=/h", "HOROVOD_SSH_COMMAND=my_ssh -F conf"});
  EXPECT_THAT(job.remote_shell_args, ElementsAre("-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-p", "2222",
                                                 "-i", "key", "-l", "me"));
  EXPECT_THAT(job.remote_shell, ElementsAre("my_ssh", "-F", "conf"));
  EXPECT_THAT(job.inherited, Not(Contains("HOME")));  // of another user
  EXPECT_THAT(job_of(options, {"OMPI_MCA_plm_rsh_agent=/etc/mpi/kubexec.sh"}).remote_shell_args, IsEmpty());
}

TEST(MpiJob, OnThisMachineNeedsNoSshAndKnowsTheCores) {
  Options options = far_hosts();
  options.hosts = {{"localhost", 3}};
  MpiJob job = job_of(options);
  EXPECT_THAT(job.remote_shell_args, IsEmpty());
  EXPECT_THAT(job.variables, Contains(Pair("OMP_NUM_THREADS", testing::_)));
  EXPECT_THAT(job_of(options, {"OMP_NUM_THREADS=7"}).variables, Not(Contains(Pair("OMP_NUM_THREADS", testing::_))));
  EXPECT_THAT(job_of(far_hosts()).variables, IsEmpty());
}

TEST(MpiJob, HasTheInterfacesForAllWhoTalk) {
  Options options = far_hosts();
  options.network_interfaces = {"ib0", "eth0"};
  EXPECT_THAT(job_of(options).variables,
              UnorderedElementsAre(Pair("HOROVOD_GLOO_IFACE", "ib0"), Pair("HOROVOD_NETWORK_INTERFACES", "ib0,eth0"),
                                   Pair("NCCL_SOCKET_IFNAME", "ib0,eth0")));
}

TEST(MpiJob, MistakesAreTold) {
  Options options = far_hosts();
  options.hosts[0].user = "me";
  EXPECT_THAT(std::string(make(options).status().message()), HasSubstr("mpirun logs in to all hosts as one user"));
  options = far_hosts();
  options.binding_args = "'";
  EXPECT_THAT(std::string(make(options).status().message()), HasSubstr("--binding-args: a quote is not closed"));
}

}  // namespace
}  // namespace hvd::launcher
