"""The decisions, pure: values in (time included), values out."""
