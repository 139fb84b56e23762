"""Batches: a feed's memory as arrays of the job's framework."""
