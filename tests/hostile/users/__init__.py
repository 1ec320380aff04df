"""People who may create ActivityPools, and what they may try."""
