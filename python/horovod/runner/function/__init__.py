"""How horovod.run moves a function to the workers and brings back what came of it.

Read channel.py (who may talk; encryption.py is below it if asked for), task.py (what is said), listener.py and then
server.py (the caller's side), call.py (the life of a run); horovod.runner.run_task is the worker's side.
"""
