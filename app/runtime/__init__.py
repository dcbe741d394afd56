"""The machine and its processes: devices, memory, files, launchers."""
