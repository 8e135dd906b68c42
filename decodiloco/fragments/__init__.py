"""How a model's tensors are cut into fragments, and in which order fragments are merged."""
