"""The ActivityPool resource: spec, status, conditions, and the CRD made from them."""
