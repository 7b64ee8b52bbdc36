"""Several hosts on one machine, for tests: each has its own name, NICs, addresses, /dev/shm and /etc/hosts.

    with Bed([Host("hosta"), Host("hostb", nics=["ib0", "eth1"]), Host("hostc", ipv4=False)], ssh=True) as bed:
        worker = bed["hosta"].popen(["python", "train.py"], env=...)      # a subprocess.Popen like any other
        bed["hostb"].run(["ping", "-c", "1", "hosta"], check=True)        # as subprocess.run

        bed["hostb"].cut(); bed["hostb"].heal()     # cable out: the carrier is lost
        bed.partition("hosta", "hostb")             # these two lose each other, silently
        bed.drop("hosta", "hostb")                  # only what hosta sends to hostb is lost
        bed.heal("hosta", "hostb")
        bed["hostb"].limit("1gbit")                 # None: no limit
        bed["hostb"].freeze(); bed["hostb"].thaw()  # no process runs; the kernel still answers
        bed["hostb"].crash(); bed["hostb"].boot()   # power off: no FIN, no RST; then a fresh host

A host is a network, UTS, IPC, mount and cgroup namespace. The file system is shared, as by NFS, except /dev/shm, /run,
/sys, /etc/hosts, /etc/hostname, /etc/resolv.conf and, with ssh, /etc/ssh. Processes share one pid space, so a test can
signal any process of any host. NIC number i of host number n has 10.77.i.n and fd77:<i+1>::n; all NICs number i hang on
one switch. Beds know nothing of each other nor of the machine's own network, so any number can be up side by side.

Needs root and the packages of `tools/packages.sh testbed`; `why_not()` tells what is missing. What a killed test run
leaves behind is removed by the next one.

Thread rule: one thread at a time for one bed; processes in it are as independent as any.
"""

from bed.bed import Bed
from bed.host import Host, Machine
from bed.requirements import why_not

__all__ = ["Bed", "Host", "Machine", "why_not"]
