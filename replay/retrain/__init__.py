"""Training again: the learners of a tape run once more, and their deltas compared with it."""
