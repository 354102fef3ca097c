"""What a process of shoal ends with; the same for every verb."""

EXIT_DONE = 0

#: Also where any partition was stopped, or differs from its mirror.
EXIT_FAILED = 1

#: Usage or configuration: nothing was done.
EXIT_USAGE = 2

#: Neither equal nor different: nothing could be compared, or it was broken off.
EXIT_NOT_COMPARED = 3

#: Done, but after incidents that cannot be made good, as their policies allowed.
EXIT_CONTINUED = 4
