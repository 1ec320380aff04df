"""Half an hour of load and faults drawn at random; afterwards everything is counted, and must not have grown."""
