"""The Python side of the C ABI: declarations (abi), loading and errors (library), operations (operations),
the two sides of elastic jobs: a worker's (elastic), and that of the program that starts the workers (driver), and
connections between processes that share a key (connections).
"""
