"""A worker and a broker that speak the protocol of Sentry's taskbroker. Needs the extra `taskbroker`."""
