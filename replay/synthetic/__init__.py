"""Tapes of runs that nobody trained: the production machines, under a cluster that is only told.

What stands on such a tape happened in no time and moved no tensor; `replay retrain` then trains
under it for real. Every fingerprint on it begins with "synthetic".
"""
