"""What one TCP connection between two hosts carries, by iperf3: the microseconds of a MiB in one direction.

Output and arguments are those of sampler.h, with the name of the other host before them; the only case is wire:<bytes>.
A sample takes a second, however long one is asked for: the bucket of a rate limit must be empty. There is no probe.
"""

from __future__ import annotations

import json
import subprocess
import sys

SECONDS, SKIPPED = 1, 0.3


def bytes_per_second(peer: str) -> float:
    serve = ["ssh", peer, "iperf3", "--server", "--one-off", "--forceflush"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        if not any("listening" in line for line in server.stdout):
            raise RuntimeError(f"iperf3 did not start on {peer}")
        ask = ["iperf3", "--client", peer, "--json", "--time", str(SECONDS), "--omit", str(SKIPPED)]
        report = json.loads(subprocess.run(ask, stdout=subprocess.PIPE, check=True).stdout)
        server.communicate()
    return float(report["end"]["sum_received"]["bits_per_second"]) / 8


def main() -> None:
    peer, ranks, samples, _milliseconds, *cases = sys.argv[1:]
    for case in cases:
        kind, size = case.split(":")
        for _ in range(max(1, int(samples) // 2)):
            microseconds = int(size) / bytes_per_second(peer) * 1e6
            print(kind, size, ranks, f"{microseconds:.4f}", 0, 0, sep="\t", flush=True)


if __name__ == "__main__":
    main()
