"""The Python side of the C ABI: declarations (abi), loading and errors (library), operations (operations),
and the two sides of elastic jobs: a worker's (elastic), and that of whoever starts the workers (driver).
"""
