"""How horovod.run sends a function to the workers and receives the results.

Read channel.py (messages over an authenticated connection), task.py (their contents), listener.py and server.py (the
caller's side), call.py (a run from start to end); horovod.runner.run_task is the worker's side.
"""
