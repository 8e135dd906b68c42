"""A whole run on one heap of moments: production machines, simulated time, hardships by seed."""
