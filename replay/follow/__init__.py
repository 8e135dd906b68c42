"""A run followed while it lives: its facts as they come, or every merge of it made again."""
