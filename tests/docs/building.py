"""Makes the site, as `make docs` does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def build(configuration: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", configuration, "-d", site]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
