"""Stands for jsrun of LSF: starts the ranks of a rank file on this machine, with the variables of Spectrum MPI.

Writes its arguments and the rank file to $FAKE_JSRUN, one line of JSON. Its exit code is that of the first rank that
fails.
"""

import json
import os
import re
import subprocess
import sys

arguments = sys.argv[1:]
options = {}
while arguments and arguments[0].startswith("--"):
    option, value, *arguments = arguments
    options[option] = value
with open(options["--erf_input"]) as file:
    text = file.read()
with open(os.environ["FAKE_JSRUN"], "w") as file:
    json.dump({"options": options, "command": arguments, "rank_file": text}, file)
ranks = re.findall(r"^rank: (\d+): { hostname: (\S+); cpu: {([\d-]+)} ; gpu: \* ; mem: \* }$", text, re.MULTILINE)
processes = []
for rank, host, _ in ranks:
    local = [other for other, name, _ in ranks if name == host]
    place = {"RANK": rank, "SIZE": len(ranks), "LOCAL_RANK": local.index(rank), "LOCAL_SIZE": len(local)}
    variables = {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in place.items()}
    processes.append(subprocess.Popen(arguments, env=os.environ | variables | {"PMIX_NAMESPACE": str(os.getpid())}))
sys.exit(next((code for code in [process.wait() for process in processes] if code), 0))
