"""What has to be so before anything else is imported: import this first."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "python"), str(HERE.parents[1] / "python")]
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # processes are forked: NumPy must not start threads
    os.environ.setdefault(_name, "1")
