"""Prints, as JSON, how the platform's own parser reads a live.yaml: .venv-cloud/bin/python live_jobs.py FOLDER

Expressions are evaluated with a flow called `training` and the file's own volumes."""

import asyncio
import json
import sys
from typing import Any

from apolo_flow.expr import RootABC
from apolo_flow.parser import find_workspace, parse_live
from apolo_flow.types import LocalPath

FIELDS = ("name", "image", "preset", "pass_config", "volumes", "env", "cmd", "tags", "multi", "detach")


class Values(RootABC):
    def __init__(self, **values: Any) -> None:
        self._values = values

    def lookup(self, name: str) -> Any:
        return self._values[name]

    def client(self) -> Any:
        raise RuntimeError("there is no platform here")

    @property
    def dry_run(self) -> bool:
        return True


async def read(folder: str) -> dict[str, dict[str, Any]]:
    place = find_workspace(LocalPath(folder))
    flow = parse_live(place.workspace, place.config_dir / "live.yaml")
    values = Values(flow={"flow_id": "training"})
    volumes = {}
    for name, volume in flow.volumes.items():
        remote, mount = await volume.remote.eval(values), await volume.mount.eval(values)
        volumes[name] = {"mount": str(mount), "ref_ro": f"{remote}:{mount}:ro"}
    jobs = {}
    for name, job in flow.jobs.items():
        params = {key: await each.default.eval(values) for key, each in (job.params or {}).items()}
        context = Values(flow={"flow_id": "training"}, volumes=volumes, params=params)
        given = {field: getattr(job, field) for field in FIELDS if getattr(job, field) is not None}
        jobs[name] = {field: await expression.eval(context) for field, expression in given.items()}
    return jobs


print(json.dumps(asyncio.run(read(sys.argv[1])), default=str))
