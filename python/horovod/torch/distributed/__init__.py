"""torch.distributed over Horovod's engine: `import horovod.torch.distributed` makes the backend "hvd" known.

    torch.distributed.init_process_group("hvd")

In reading order: `meeting` forms the engine's world, `sets` the process sets of groups, `group` has the verbs of a
process group, `requests` makes requests for the engine, `memory` copies what is not contiguous, `work` waits,
`futures` completes futures, `point_to_point` sends and receives.
"""

from horovod import _torch_entry
from horovod.torch.distributed.errors import PeerLostError, TimeoutError

_torch_entry.register()

__all__ = ["PeerLostError", "TimeoutError"]
