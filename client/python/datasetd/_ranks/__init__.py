"""Which rank and node of a job this process is; what ranks agree on."""
