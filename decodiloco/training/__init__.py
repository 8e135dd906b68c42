"""The built-in trainer: a small decoder, real text, an evaluator."""
