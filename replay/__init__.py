"""The proof: the same machines run again from the record."""
