"""What one engine step costs: datasheets, model shapes, roofline, experts, collectives, engine modes, memory.

Pure functions of numbers. Knows neither time nor randomness, and reads nothing but its own data files.
"""
