"""The parts of Horovod that are independent of frameworks."""
