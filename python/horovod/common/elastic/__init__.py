"""Elastic training, independent of the framework: state that survives a change of the world.

Read `state.py` (what survives), `agreement.py` (what ranks decide together), `loop.py` (what happens around training),
then `notification.py` and `preemption.py` (what triggers a change of the world), `durable.py` (files).
"""

from horovod.common.elastic.loop import run_fn
from horovod.common.elastic.notification import HostUpdates, notification_manager
from horovod.common.elastic.state import HostUpdateResult, ObjectState, State

__all__ = ["HostUpdateResult", "HostUpdates", "ObjectState", "State", "notification_manager", "run_fn"]
