"""A script of four ranks on two hosts: every rank writes its place in one line, and the sum of 1 to 4."""

import os

import numpy as np

import horovod.numpy as hvd

hvd.init()
total = hvd.allreduce(np.full(300000, hvd.rank() + 1.0), op=hvd.Sum)
rows = hvd.allgather(np.full((hvd.rank() + 1, 3), float(hvd.rank())))
assert hvd.mpi_enabled() and rows.shape == (10, 3) and hvd.broadcast(np.array([hvd.rank()]), 3)[0] == 3
place = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size(), int(total[-1])]
os.write(1, (" ".join(map(str, place)) + "\n").encode())
hvd.shutdown()
