"""Attacks by users who may create ActivityPools."""
