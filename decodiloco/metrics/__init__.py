"""A run told as Prometheus metrics, by a follower of its tape in a process of its own."""
