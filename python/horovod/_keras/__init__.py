"""Horovod for Keras, whatever its generation and backend. Public are horovod.tensorflow.keras and horovod.keras.

Reading order: optimizer.py wraps optimizers, settings.py holds their arguments, on_tensorflow.py and on_torch.py reduce
and broadcast, hooks.py says where Keras has to be told, then callbacks.py, elastic.py and loading.py.
"""
