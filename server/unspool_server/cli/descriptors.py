"""How many files and sockets the process may have open: as many as it is allowed, within reason. Closes none."""

import contextlib

MOST = 65_536
"""Enough for every connection and log that the limits allow. Where the system allows a thousand million, programs that
are started from here and first close whatever they might have inherited would take minutes to begin."""


def allow_many_descriptors() -> None:
    """Raise the soft limit to the hard one, at most to `MOST`; never lower it. Does nothing where there is none."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    # Some systems have a lower bound than the one they tell; the daemon works with what it has.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
