"""Durable multi-step tasks: defined once, saved before every call, finished by whichever runner is alive."""
