"""The machine and its processes: devices, memory, signals, signs of life."""
