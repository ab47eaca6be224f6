//! Clock, randomness, tasks, the blocking pool and sockets: the runtime seam.
