"""One file per API; each has a function ``handle(broker, call, request)`` that returns the response."""
