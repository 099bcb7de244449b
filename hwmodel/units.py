"""The only unit factors of the project: multiply by one to enter SI, divide by one to leave it."""

MS = 1e-3
US = 1e-6
KB = 1e3
MB = 1e6
GB = 1e9
KIB = 2**10
MIB = 2**20
GIB = 2**30
TERA = 1e12
MINUTE = 60.0
HOUR = 3600.0
BITS_PER_BYTE = 8
