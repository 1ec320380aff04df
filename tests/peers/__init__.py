"""Published implementations of protocols that we implement, too: tests run ours against them."""
