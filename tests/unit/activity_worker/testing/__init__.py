"""Tests of the shipped fake of Step Functions, without HTTP and in virtual time."""
