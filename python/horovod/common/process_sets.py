"""Process sets: groups of ranks that run collectives among themselves."""

from horovod._generic.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
