"""What ranks say about themselves, from the output of a job in which each prints one line of JSON."""

import json
import re


def by_rank(result):
    assert result.returncode == 0, result.stderr.decode()
    found = {}
    for line in result.stdout.decode().splitlines():
        rank, text = re.fullmatch(r"\[(\d+)\]<stdout>:(.*)", line).groups()
        found[int(rank)] = json.loads(text)
    return [found[rank] for rank in sorted(found)]
