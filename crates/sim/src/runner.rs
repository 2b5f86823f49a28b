//! Runs seeds and says which failed and how to run them again.
