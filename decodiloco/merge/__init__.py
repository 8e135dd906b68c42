"""From deltas to the next version of a fragment: arithmetic that gives the same bits anywhere.

The functions here take numpy arrays. Stored deltas are merged by `decodiloco.merge.fragment`.
Nothing in this package knows rounds, inboxes or the tape.
"""

from decodiloco.merge.outer import outer_step
from decodiloco.merge.rules import merge_tensor, token_weight

__all__ = ["merge_tensor", "outer_step", "token_weight"]
