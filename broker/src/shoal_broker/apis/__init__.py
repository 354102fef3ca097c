"""One file per family of APIs; each API has a function ``(state, call, request)`` that returns the answer."""
