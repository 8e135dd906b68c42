"""Immutable blobs, named by what they hold, at any place that fsspec reaches."""
