"""The fake that ships with the product, without HTTP and in virtual time."""
