"""What befalls the one operator that all tests share: these tests run alone."""
