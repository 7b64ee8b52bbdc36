"""Horovod for Keras, for all versions and backends. The public packages are horovod.tensorflow.keras and horovod.keras.

Reading order: optimizer.py wraps optimizers, settings.py holds their arguments, on_tensorflow.py and on_torch.py reduce
and broadcast, hooks.py changes Keras itself, then callbacks.py, elastic.py and loading.py.
"""
