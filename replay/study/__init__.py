"""The study: real small models trained under synthetic tapes, beside the paper's tables."""
