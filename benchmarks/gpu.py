#!/usr/bin/env python3
"""Figures of the NCCL backend that need no GPU: how often it calls CUDA and NCCL, exactly, and what the host pays.

    python benchmarks/gpu.py [--steps 1000] [--kills 5]

The stand-in of tests/gpu does nothing here but count, so the times are those of the host alone: they say nothing about
the speed of a GPU. The last figures are from an elastic job that loses ranks inside NCCL kernels. The exit code is 1
when a count is not what docs/gpu.md promises.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "release"
STANDIN = BUILD / "tests" / "gpu" / "standin"
TENSORS = (1, 2, 10, 160, 161, 320)
PER_LAUNCH = 160
UPSTREAM_BUFFER = 128 << 20  # HOROVOD_FUSION_THRESHOLD, which upstream allocates at the first fused operation
Figures = dict[str, Any]


def count(steps: int) -> list[Figures]:
    """What bench_gpu prints: a step of so many tensors, on the stand-in and on host memory."""
    env = os.environ | {
        "LD_LIBRARY_PATH": f"{STANDIN / 'cuda'}:{STANDIN / 'nccl-2.27'}",
        "HVD_STANDIN_MODE": "count",
        "HVD_STANDIN_LEAKS": "print",
    }
    command = [str(BUILD / "benchmarks" / "bench_gpu"), str(steps), *map(str, TENSORS)]
    ended = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines()]


def promised(tensors: int) -> Figures:
    """The exact counts of a step in which so many tensors are one plan, submitted from one stream in one call."""
    packs = 0 if tensors == 1 else 2 * -(-tensors // PER_LAUNCH)
    return {
        "kernels": packs,
        "nccl_launches": 1,
        "copies": 0,
        "waits": 1,  # for the stream that made the tensors
        "event_records": 2,  # one at submit, one at the end of the plan
        "event_creates": 0,
        "host_syncs": 0,
        "device_allocations": 0,
        "pinned_allocations": 0,
    }


def differences(figures: Figures) -> list[str]:
    wanted = promised(figures["tensors"])
    return [
        f"{figures['case']}: {name} is {figures[name]:g}, not {value}"
        for name, value in wanted.items()
        if figures[name] != value
    ]


def print_counts(all_figures: list[Figures]) -> None:
    columns = ("kernels", "nccl_launches", "waits", "event_records", "host_syncs", "heap", "heap_host")
    print(f"{'a step of':<24}" + "".join(f"{name.replace('_', ' '):>15}" for name in columns))
    for each in all_figures:
        print(f"{each['case']:<24}" + "".join(f"{each[name]:>15g}" for name in columns))
    print(f"\n{'host time':<24}{'step, us':>12}{'on host mem.':>14}{'submit/tensor':>15}{'on host mem.':>14}")
    for each in all_figures:
        submit, host = each["submit_us"] / each["tensors"], each["submit_host_us"] / each["tensors"]
        print(f"{each['case']:<24}{each['step_us']:>12.1f}{each['step_host_us']:>14.1f}{submit:>15.2f}{host:>14.2f}")
    last = all_figures[-1]
    print(
        f"\ndevice memory for {last['case']} ({last['bytes'] / (1 << 20):.1f} MiB): {last['held'] / (1 << 20):.1f} MiB "
        f"held; upstream's rule: {UPSTREAM_BUFFER / (1 << 20):.0f} MiB for each stream"
    )


def kill(times: int) -> tuple[list[float], list[float]]:
    """Seconds from the kill of a rank inside a NCCL kernel to the error on all others, and to a full world at work."""
    sys.path[:0] = [str(ROOT / "tests" / "gpu"), str(ROOT / "tests" / "elastic")]
    from faults import HOSTS, OPTIONS, SIZE, Faults
    from gpu_machine import gpu_environment
    from job import Job

    errors, recovered = [], []
    with tempfile.TemporaryDirectory(prefix="gpu-kill-") as top:
        folder = Path(top) / "job"
        (folder / "gpu").mkdir(parents=True)
        env = gpu_environment() | {
            "PYTHONPATH": f"{ROOT / 'python'}:{ROOT / 'tests' / 'elastic'}:{ROOT / 'tests' / 'gpu'}",
            "HVD_STANDIN_GPUS": str(sum(HOSTS.values())),
            "HVD_STANDIN_FAULT_FOLDER": str(folder / "gpu"),
        }
        horovodrun = str(ROOT / "python/horovod/bin/horovodrun")
        with Job(horovodrun, folder, HOSTS, SIZE, options=OPTIONS, program="gpu_worker.py", env=env) as job:
            faults = Faults(job)
            job.wait_until_going(SIZE)
            for _ in range(times):
                faults.put("nccl.kernel", "kill")
                faults.wait("nccl.kernel")
                (claimed,) = faults.folder.glob("nccl.kernel.claimed.*")
                moment = claimed.stat().st_ctime - (time.time() - time.monotonic())
                job.wait_until_going(SIZE, moment)
                told = [event["time"] for event in job.events if event["event"] == "error" and event["time"] > moment]
                errors.append(max(told) - moment)
                going = [event["time"] for event in job.events if event["event"] == "going" and event["time"] > moment]
                recovered.append(min(going) - moment)
            job.finish()
    return errors, recovered


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--kills", type=int, default=5, help="default: %(default)s")
    options = parser.parse_args()
    print("a stand-in for CUDA and NCCL that only counts: no GPU is measured here\n")
    all_figures = count(options.steps)
    print_counts(all_figures)
    wrong = [text for each in all_figures for text in differences(each)]
    for text in wrong:
        print(f"WRONG {text}")
    if options.kills:
        errors, recovered = kill(options.kills)
        for label, values in (("error on the survivors", errors), ("next good collective", recovered)):
            print(f"from a kill to the {label}: median {statistics.median(values):.2f} s, most {max(values):.2f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
