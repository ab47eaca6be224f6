//! Configuration: every key declared once as data, riak.conf's form, and what becomes of each Riak key.
