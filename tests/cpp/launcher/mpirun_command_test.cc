#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/mpi/mpi_command.h"
#include "launcher/mpi/mpi_job.h"
#include "launcher/processes/shell_words.h"

namespace hvd::launcher {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

MpiVersion version_of(const char* printed) {
  auto version = read_mpi_version(printed);
  EXPECT_TRUE(version) << printed;
  return version.value_or(MpiVersion());
}

// What these programs print for --version.
const MpiVersion kOpen4 = version_of("mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/\n");
const MpiVersion kOpen5 = version_of("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/\n");
const MpiVersion kSpectrum = version_of("mpirun (IBM Spectrum MPI) 10.3.0.01\n\nmade from Open MPI 4\n");
const MpiVersion kMpich = version_of("HYDRA build details:\n    Version:                  4.0.2\n");
const MpiVersion kIntel = version_of("Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515\n");

MpiJob two_hosts() {
  return {.hosts = {{"a", 2}, {"b", 2}},
          .num_proc = 4,
          .command = {"python", "train.py", "a b"},
          .variables = {{"HOROVOD_CYCLE_TIME", "1"}, {"_HOROVOD_SECRET_KEY", "s3cret"}},
          .inherited = {"PATH", "HOME"}};
}

std::string line(const MpiVersion& version, const MpiJob& job) {
  return shell_line(mpirun_command(version, "mpirun", job).command);
}

TEST(MpiFlavour, IsWhatMpirunSays) {
  EXPECT_EQ(describe(kOpen4), "Open MPI 4.1.4");
  EXPECT_EQ(describe(kOpen5), "Open MPI 5.0.11");
  EXPECT_EQ(kOpen5.major, 5);
  EXPECT_EQ(describe(kSpectrum), "IBM Spectrum MPI 10.3.0.01");
  EXPECT_EQ(describe(kMpich), "MPICH 4.0.2");
  EXPECT_EQ(describe(kIntel), "Intel MPI 2021.13");
  EXPECT_EQ(describe(version_of("Open MPI")), "Open MPI");
  EXPECT_FALSE(read_mpi_version("slurm 22.05"));
  EXPECT_FALSE(read_mpi_version(""));
}

TEST(MpirunCommand, OpenMpi4) {
  EXPECT_EQ(line(kOpen4, two_hosts()),
            "mpirun -np 4 -H a:2,b:2 --bind-to none --map-by slot --oversubscribe --mca pml ob1 --mca btl '^openib' "
            "--allow-run-as-root --tag-output -x HOME -x HOROVOD_CYCLE_TIME -x PATH -x _HOROVOD_SECRET_KEY "
            "python train.py 'a b'");
}

TEST(MpirunCommand, OpenMpi5) {
  EXPECT_EQ(line(kOpen5, two_hosts()),
            "mpirun -np 4 -H a:2,b:2 --bind-to none --map-by slot:OVERSUBSCRIBE --allow-run-as-root --output tag "
            "-x HOME -x HOROVOD_CYCLE_TIME -x PATH -x _HOROVOD_SECRET_KEY python train.py 'a b'");
}

TEST(MpirunCommand, SpectrumMpi) {
  MpiJob job = two_hosts();
  job.tcp = true;
  EXPECT_EQ(line(kSpectrum, job),
            "mpirun -np 4 -H a:2,b:2 --bind-to socket --map-by socket --rank-by core --oversubscribe -tcp "
            "--allow-run-as-root --tag-output -x HOME -x HOROVOD_CYCLE_TIME -x PATH -x _HOROVOD_SECRET_KEY "
            "python train.py 'a b'");
}

TEST(MpirunCommand, Mpich) {
  EXPECT_EQ(line(kMpich, two_hosts()),
            "mpirun -bind-to none -prepend-rank -genvlist HOME,HOROVOD_CYCLE_TIME,PATH,_HOROVOD_SECRET_KEY "
            "-np 4 -hosts a:2,b:2 python train.py 'a b'");
}

TEST(MpirunCommand, IntelMpi) {
  MpiJob job = two_hosts();
  constexpr const char* kBegin = "mpirun -prepend-rank -genvlist HOME,HOROVOD_CYCLE_TIME,PATH,_HOROVOD_SECRET_KEY ";
  EXPECT_EQ(line(kIntel, job), std::string(kBegin) + "-n 4 -ppn 2 -hosts a,b python train.py 'a b'");
  EXPECT_THAT(mpirun_command(kIntel, "mpirun", job).variables, Contains(Pair("I_MPI_PIN", "off")));
  job.hosts = {{"a", 1}, {"b", 3}};
  EXPECT_EQ(line(kIntel, job),
            std::string(kBegin) + "-host a -n 1 python train.py 'a b' : -host b -n 3 python train.py 'a b'");
}

TEST(MpirunCommand, ValuesOfVariablesAreInItsEnvironmentOnly) {
  for (const MpiVersion& version : {kOpen4, kOpen5, kSpectrum, kMpich, kIntel}) {
    MpiStart start = mpirun_command(version, "mpirun", two_hosts());
    EXPECT_THAT(shell_line(start.command), Not(HasSubstr("s3cret")));
    EXPECT_THAT(start.variables, Contains(Pair("_HOROVOD_SECRET_KEY", "s3cret")));
    EXPECT_EQ(start.command.front(), "mpirun");
  }
}

TEST(MpirunCommand, WhatTheUserGivesIsNotGivenTwice) {
  MpiJob job = two_hosts();
  job.mpi_args = {"-mca",      "btl",      "tcp,self", "--allow-run-as-root", "-tag-output", "-x",
                  "PATH=/opt", "--map-by", "node"};
  EXPECT_EQ(line(kOpen4, job),
            "mpirun -np 4 -H a:2,b:2 --bind-to none --oversubscribe --mca pml ob1 -x HOME -x HOROVOD_CYCLE_TIME "
            "-x _HOROVOD_SECRET_KEY -mca btl tcp,self --allow-run-as-root -tag-output -x PATH=/opt --map-by node "
            "python train.py 'a b'");
  job.mpi_args.clear();
  job.mca_variables = {"pml"};
  EXPECT_THAT(line(kOpen4, job), Not(HasSubstr("pml")));
}

TEST(MpirunCommand, Binding) {
  MpiJob job = two_hosts();
  job.bind_to = "core";
  EXPECT_THAT(line(kOpen4, job), HasSubstr(" --bind-to core --map-by slot "));
  EXPECT_THAT(line(kMpich, job), HasSubstr(" -bind-to core "));
  EXPECT_THAT(mpirun_command(kIntel, "mpirun", job).variables, Contains(Pair("I_MPI_PIN_DOMAIN", "core")));
  job.binding_args = {"--bind-to", "hwthread"};
  for (const MpiVersion& version : {kOpen4, kOpen5, kSpectrum, kMpich, kIntel}) {
    EXPECT_THAT(line(version, job), HasSubstr(" --bind-to hwthread "));
    EXPECT_THAT(line(version, job), Not(HasSubstr("slot")));
    EXPECT_THAT(line(version, job), Not(HasSubstr("bind-to core")));
  }
}

TEST(MpirunCommand, Interfaces) {
  MpiJob job = two_hosts();
  job.interfaces = job.networks = {"eth0", "ib0"};
  EXPECT_THAT(line(kOpen4, job), HasSubstr("--mca btl_tcp_if_include eth0,ib0 --mca oob_tcp_if_include eth0,ib0 "));
  EXPECT_THAT(line(kOpen5, job), HasSubstr("--mca btl_tcp_if_include eth0,ib0 --prtemca prte_if_include eth0,ib0 "));
  EXPECT_THAT(line(kMpich, job), HasSubstr(" -iface eth0 "));
  job.networks = {"10.77.0.0/24"};
  EXPECT_THAT(line(kOpen4, job),
              HasSubstr("--mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 "));
  EXPECT_THAT(line(kOpen5, job), HasSubstr("--mca btl_tcp_if_include 10.77.0.0/24 --allow-run-as-root "));
  EXPECT_THAT(mpirun_command(kMpich, "mpirun", job).warnings,
              ElementsAre("this mpirun supports only one interface: eth0"));
}

TEST(MpirunCommand, InterfacesThatOtherHostsNameDifferentlyBecomeNetworks) {
  std::vector<InterfaceAddress> all{{.interface = "eth0", .ip = {.bytes = {10, 77, 5, 1}}, .prefix = 22},
                                    {.interface = "eth0", .ip = {.is_v6 = true, .bytes = {0xfd}}, .prefix = 64},
                                    {.interface = "eth1", .ip = {.bytes = {192, 168, 1, 9}}, .prefix = 24}};
  EXPECT_THAT(networks_of({"eth0", "eth1"}, all), ElementsAre("eth0", "eth1"));
  EXPECT_THAT(networks_of({"eth0", "ib0"}, all), ElementsAre("10.77.4.0/22"));
  EXPECT_THAT(networks_of({"ib0"}, all), ElementsAre("ib0"));  // it is for MPI to complain
  EXPECT_THAT(networks_of({}, all), testing::IsEmpty());
}

TEST(MpirunCommand, RemoteShell) {
  MpiJob job = two_hosts();
  job.remote_shell_args = {"-p", "2222", "-i", "key"};
  EXPECT_THAT(line(kOpen4, job), HasSubstr(" --mca plm_rsh_args '-p 2222 -i key' "));
  EXPECT_THAT(line(kOpen5, job), HasSubstr(" --prtemca plm_ssh_args '-p 2222 -i key' "));
  EXPECT_THAT(mpirun_command(kMpich, "mpirun", job).variables,
              Contains(Pair("HYDRA_LAUNCHER_EXTRA_ARGS", "-p 2222 -i key")));
  EXPECT_THAT(mpirun_command(kIntel, "mpirun", job).variables,
              Contains(Pair("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "-p 2222 -i key")));
  job.remote_shell = {"/opt/my_ssh", "-F", "conf"};
  EXPECT_THAT(line(kOpen4, job), HasSubstr(" --mca plm_rsh_agent '/opt/my_ssh -F conf' --mca plm_rsh_args "));
  EXPECT_THAT(line(kMpich, job), HasSubstr(" -launcher ssh -launcher-exec /opt/my_ssh "));
  EXPECT_THAT(mpirun_command(kMpich, "mpirun", job).variables,
              Contains(Pair("HYDRA_LAUNCHER_EXTRA_ARGS", "-F conf -p 2222 -i key")));
  EXPECT_THAT(line(kIntel, job), HasSubstr(" -bootstrap ssh -bootstrap-exec /opt/my_ssh "));
}

TEST(MpirunCommand, Output) {
  MpiJob job = two_hosts();
  job.output_folder = "/out";
  job.prefix_timestamp = true;
  EXPECT_THAT(line(kOpen4, job), HasSubstr(" --tag-output --timestamp-output --output-filename /out "));
  EXPECT_THAT(line(kOpen5, job), HasSubstr(" --output tag,timestamp,dir=/out "));
  EXPECT_THAT(line(kMpich, job),
              HasSubstr(" -outfile-pattern /out/rank.%r/stdout -errfile-pattern /out/rank.%r/stderr "));
  EXPECT_THAT(mpirun_command(kMpich, "mpirun", job).warnings,
              ElementsAre("this mpirun cannot prefix lines with the time"));
}

TEST(MpirunCommand, ManyHostsAreReachedByMpirunItself) {
  MpiJob job = two_hosts();
  EXPECT_THAT(line(kOpen4, job), Not(HasSubstr("tree_spawn")));
  job.hosts.clear();
  for (int i = 0; i < 64; ++i) job.hosts.push_back({fmt::format("node{}", i), 1});
  EXPECT_THAT(line(kOpen4, job), HasSubstr("--mca plm_rsh_no_tree_spawn true --mca plm_rsh_num_concurrent 64 "));
  EXPECT_THAT(line(kOpen5, job),
              HasSubstr("--prtemca plm_ssh_no_tree_spawn true --prtemca plm_ssh_num_concurrent 64 "));
}

TEST(MpirunCommand, Ipv6AddressesHaveBrackets) {
  MpiJob job = two_hosts();
  job.hosts[1].name = "fd00::2";
  EXPECT_THAT(line(kOpen4, job), HasSubstr(" -H 'a:2,[fd00::2]:2' "));
}

TEST(JsrunCommand, HasARankFileAndArgumentsForMpi) {
  MpiJob job = two_hosts();
  EXPECT_EQ(shell_line(jsrun_command("jsrun", job, "/tmp/f").command),
            "jsrun --erf_input /tmp/f python train.py 'a b'");
  job.mpi_args = {"-mca", "a", "b c"};
  job.tcp = true;
  job.interfaces = {"ib0"};
  job.output_folder = "/out";
  EXPECT_THAT(
      jsrun_command("jsrun", job, "/tmp/f").command,
      ElementsAre("jsrun", "--erf_input", "/tmp/f", "--stdio_stdout", "/out/stdout", "--stdio_stderr", "/out/stderr",
                  "--smpiargs", "-mca a 'b c' -tcp -mca btl_tcp_if_include ib0", "python", "train.py", "a b"));
  job.binding_args = {"--bind", "packed:4"};
  EXPECT_THAT(shell_line(jsrun_command("jsrun", job, "/tmp/f").command), HasSubstr("jsrun --bind packed:4 --stdio"));
}

TEST(JsrunCommand, RanksShareTheCoresOfTheirHost) {
  MpiJob job = two_hosts();
  job.hosts = {{"a", 2}, {"b", 3}};
  EXPECT_EQ(rank_file_text(job, 8),
            "overlapping_rs: warn\ncpu_index_using: logical\n\n"
            "rank: 0: { hostname: a; cpu: {0-3} ; gpu: * ; mem: * }\n"
            "rank: 1: { hostname: a; cpu: {4-7} ; gpu: * ; mem: * }\n"
            "rank: 2: { hostname: b; cpu: {0-1} ; gpu: * ; mem: * }\n"
            "rank: 3: { hostname: b; cpu: {2-3} ; gpu: * ; mem: * }\n"
            "rank: 4: { hostname: b; cpu: {4-5} ; gpu: * ; mem: * }\n");
  EXPECT_THAT(rank_file_text(job, 2), HasSubstr("rank: 4: { hostname: b; cpu: {0} ; gpu: * ; mem: * }\n"));
  EXPECT_THAT(rank_file_text(job, 2), HasSubstr("overlapping_rs: allow\n"));
}

}  // namespace
}  // namespace hvd::launcher
