"""Step Functions emulators as pods of the local cluster."""
