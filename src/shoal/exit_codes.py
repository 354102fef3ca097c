"""Exit codes, the same for every verb."""

EXIT_DONE = 0

#: Also if a partition was stopped, or differs from its mirror.
EXIT_FAILED = 1

#: Usage or configuration: nothing was done.
EXIT_USAGE = 2

#: The comparison was impossible, or was interrupted.
EXIT_NOT_COMPARED = 3

#: Done, but after incidents that their policies allowed.
EXIT_CONTINUED = 4
