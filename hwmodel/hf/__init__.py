"""Reading of Hugging Face configurations: keys, quantization, attention, feed-forward blocks, layers.

Read `shape.py` first: it goes through a configuration from top to bottom and asks the other modules. Records here
are named tuples, not dataclasses: a dataclass takes over a millisecond to define, at every start of the program.
"""
