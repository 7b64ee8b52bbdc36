"""Runs the discovery script against a platform that has the jobs of a JSON file: with_jobs.py JOBS SCRIPT

Only the connection is replaced: jobs and their states are objects of the platform's own SDK, and what is asked for is
checked against its signature. Runs in .venv-cloud."""

import contextlib
import inspect
import json
import runpy
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from decimal import Decimal
from typing import Any

import apolo_sdk
from yarl import URL

with open(sys.argv[1]) as file:
    JOBS = json.load(file)


def describe(job: dict[str, Any]) -> apolo_sdk.JobDescription:
    resources = apolo_sdk.Resources(memory=1 << 30, cpu=1.0, nvidia_gpu=job["gpus"])
    now = datetime.now()
    status = apolo_sdk.JobStatus(job["status"])
    history = apolo_sdk.JobStatusHistory(status, "", "", "", now, now, now)
    return apolo_sdk.JobDescription(
        id=job["host"], owner="me", cluster_name="c", org_name="o", project_name="p", namespace="n", status=status,
        history=history, container=apolo_sdk.Container(apolo_sdk.RemoteImage("i"), resources), scheduler_enabled=False,
        pass_config=False, uri=URL("job:j"), total_price_credits=Decimal(0), price_credits_per_hour=Decimal(0),
        tags=job["tags"], internal_hostname=job["host"] or None,
    )  # fmt: skip


class Jobs:
    def list(self, **wanted: Any) -> contextlib.AbstractAsyncContextManager[AsyncIterator[Any]]:
        inspect.signature(apolo_sdk.Jobs.list).bind(self, **wanted)

        async def find() -> AsyncIterator[Any]:
            for job in map(describe, JOBS):
                if job.status in wanted["statuses"] and set(wanted["tags"]) <= set(job.tags):
                    yield job

        @contextlib.asynccontextmanager
        async def found() -> AsyncIterator[AsyncIterator[Any]]:
            yield find()

        return found()


class Client:
    jobs = Jobs()


@contextlib.asynccontextmanager
async def get() -> AsyncIterator[Client]:
    yield Client()


apolo_sdk.get = get
runpy.run_path(sys.argv[2], run_name="__main__")
