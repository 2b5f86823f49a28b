//! One random run.
