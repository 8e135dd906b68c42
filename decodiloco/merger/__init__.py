"""Merges carried out by other processes: they hold no state; a syncer records."""
