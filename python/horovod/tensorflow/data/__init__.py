"""Preprocessing on other machines: TensorFlow's data service, started as a separate Horovod job.

`compute_worker` is the program of that job; a training job finds it with the functions of `compute_service`.
"""
