"""What a process tells of its work: `observing` is what the code calls, `setup` who listens."""
