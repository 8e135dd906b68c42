"""Two tapes laid side by side: how far they agree, where they part, and what follows from it."""
