"""How horovod.run moves a function to the workers and brings back what came of it.

Read channel.py (who may talk), task.py (what is said), server.py (the caller's side), then call.py (the life of a run);
horovod.runner.run_task is the worker's side.
"""
