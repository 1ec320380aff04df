ARG HANDLER_IMAGE
FROM ${HANDLER_IMAGE}
# A later version of the same handler; with a function that is not there, one that crashes at its start.
ARG VERSION
ARG FUNCTION
LABEL version=${VERSION}
ENV ACTIVITY_HANDLER=${FUNCTION}
