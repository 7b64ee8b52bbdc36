"""The Python side of the C ABI: declarations (abi), loading and errors (library), operations (operations)."""
