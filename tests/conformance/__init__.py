"""Tests of one behaviour against several implementations: of Step Functions, of task sources."""
