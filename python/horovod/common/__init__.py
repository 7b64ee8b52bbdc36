"""The parts of Horovod that know no framework."""
