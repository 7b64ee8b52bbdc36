#!/usr/bin/env python3
"""Prints the secondaries that run now, for horovodrun's --host-discovery-script: one `host:slots` a line.

They are the platform's running jobs that have the tag $HOROVOD_TAG. A job has as many slots as GPUs, or one without.
"""

from __future__ import annotations

import asyncio
import os
import sys

try:
    import apolo_sdk as sdk
except ImportError:
    import neuro_sdk as sdk  # its former name


async def print_hosts(tag: str) -> None:
    async with sdk.get() as client, client.jobs.list(statuses=[sdk.JobStatus.RUNNING], tags=[tag]) as jobs:
        async for job in jobs:
            if job.internal_hostname:  # not yet known for a job that has just begun
                print(f"{job.internal_hostname}:{job.container.resources.nvidia_gpu or 1}")


if __name__ == "__main__":
    if not os.environ.get("HOROVOD_TAG"):
        sys.exit("HOROVOD_TAG has to name the tag of the secondaries, as in .neuro/live.yaml")
    asyncio.run(print_hosts(os.environ["HOROVOD_TAG"]))
