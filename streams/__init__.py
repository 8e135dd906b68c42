"""The record: what can be said in a run, and where it is kept.

This package knows events, envelopes, streams and servers. It knows nothing of models, merges
or learners' insides, and imports neither `decodiloco` nor `replay`.
"""
