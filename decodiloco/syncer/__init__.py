"""The one who orders, merges and records. Knows no learner's insides."""
