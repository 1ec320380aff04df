"""Other implementations of what we speak, as they are published: tests run ours against them."""
