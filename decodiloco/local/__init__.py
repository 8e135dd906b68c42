"""A whole cluster of real processes on one machine."""
