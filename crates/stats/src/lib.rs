//! Counters, windows and histograms behind /stats, /metrics and admin status.
