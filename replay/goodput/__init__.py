"""Millions of chips without one: failures, elasticity, goodput and uptime, by seeded simulation.

The model is pure and draws its numbers from streams it is handed; `study` brings those streams,
`command` is the door. Nothing here reads or writes a tape.
"""
