//! The only place that opens a file: the disk seam, real, in-memory with crash images, and faulty.
